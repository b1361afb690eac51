# On Windows: GNU make in Git Bash.
ifeq ($(OS),Windows_NT)
BIN := .venv/Scripts
else
BIN := .venv/bin
endif
READY := .venv/ready
LESSON := notebooks/01_eight_samples_two_steps.ipynb

.PHONY: help lab test bench mutants student outputs lint

help:
	@echo "make lab      open the first lesson in JupyterLab   (LAB_ARGS=--no-browser)"
	@echo "make test     run every test and every notebook     (TEST_ARGS='-k cutting')"
	@echo "make bench    measure the panels, click to pixel"
	@echo "make mutants  plant faults, count those that tests see (MUTANTS_ARGS='--sample 50')"
	@echo "make student  copy the lessons without solutions and answers to build/student"
	@echo "make outputs  run the notebooks, store their outputs"
	@echo "make lint     check style and formatting"

lab: $(READY)
	$(BIN)/jupyter-lab --ServerApp.root_dir=. $(LAB_ARGS) $(LESSON)

test: $(READY)
	$(BIN)/python -m pytest $(TEST_ARGS)

bench: $(READY)
	$(BIN)/python -m tests.benchmarks

mutants: $(READY)
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

student: $(READY)
	$(BIN)/python -m helpers.teaching.handing_out

outputs: $(READY)
	$(BIN)/python tests/store_outputs.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Asking each for its version also passes over the python3 of Windows that only opens the Store.
$(READY): requirements.txt
	@for python in python3 python python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    $$python -m venv .venv; exit; \
	  fi; \
	done; \
	echo "Python 3.11 or newer is needed; found: $$(python3 --version 2>&1 || echo none)" >&2; exit 1
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.txt
# Else the first lesson to draw may show that matplotlib is building its font cache.
	$(BIN)/python -c "import matplotlib.font_manager"
	@touch $@
