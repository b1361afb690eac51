"""Where accumulation is no large batch: the small net and its causes, the reports, the panel."""

import copy
import math
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import mse_loss

from helpers.figures.equivalence import (
    AVERAGED,
    HIGHEST,
    LOWEST,
    ROUNDING,
    STATISTICS,
    WEIGHTS,
    EquivalencePicture,
)
from helpers.gradients import (
    accumulated_gradient,
    compare,
    flat_gradient,
    full_batch_gradient,
    whole_window_gradient,
)
from helpers.models import encoder, net_with
from helpers.panels import EquivalencePanel
from helpers.samples import random_numbers
from helpers.subjects.causes import (
    BN_MOMENTUM,
    CHOICES,
    Causes,
    Often,
    SmallNet,
    contrastive_loss,
    corrected_momentum,
)
from helpers.subjects.equivalence import (
    EMA_DECAY,
    LR,
    MAX_NORM,
    STEPS,
    UPDATES,
    WARM_UP,
    WEIGHT_DECAY,
    distances,
    draw_window,
    embedding_gradients,
    train_with,
)
from tests.subjects.equivalence_again import distances_again
from tests.subjects.panels import move_at_random, picture_text, stays_right, values
from tests.subjects.pictures import assert_readable

ONCE, EACH = str(Often.ONCE), str(Often.EACH)
CURES = {
    "normalisation": ["none", "GroupNorm", "BatchNorm, frozen"],
    "checkpointing": list(CHOICES["checkpointing"]),
    "loss": ["each sample's own", "negatives, cached embeddings"],
    "dropout": ["off", "the same masks"],
    "clipping": ["off", ONCE],
}
SPOILERS = [
    {"normalisation": "BatchNorm"},
    {"normalisation": "BatchNorm, momentum corrected"},
    {"loss": "in-batch negatives"},
    {"dropout": "other masks"},
    {"clipping": EACH},
    {"stepping": EACH},
    {"schedule": EACH},
    {"averaging": EACH},
    {"loss_scale": "grows in the window"},
    {"accumulator": "bfloat16"},
]
cured = st.builds(Causes, **{name: st.sampled_from(choices) for name, choices in CURES.items()})
any_causes = st.builds(Causes, **{n: st.sampled_from(list(c)) for n, c in CHOICES.items()})
few = settings(max_examples=25)


def everything(measured):
    statistics = measured.statistics or ()
    return [measured.gradient, *measured.weights, *measured.averaged, *statistics]


# the small net and its causes


@given(causes=cured, k=st.sampled_from(STEPS))
@few
def test_every_mixture_of_remedies_is_equal_up_to_rounding(causes, k):
    assert max(everything(distances(causes, k))) < ROUNDING


@given(spoiler=st.sampled_from(SPOILERS), causes=cured, k=st.sampled_from(STEPS[1:]))
@settings(max_examples=40)
def test_every_cause_is_seen_whatever_else_is_there(spoiler, causes, k):
    assert max(everything(distances(replace(causes, **spoiler), k))) > 10 * ROUNDING


@given(causes=any_causes, contrastive=st.booleans())
@few
def test_one_micro_batch_is_the_whole_batch_unless_something_is_rounded_or_recomputed(
    causes, contrastive
):
    loss = "in-batch negatives" if contrastive else "each sample's own"
    causes = replace(causes, checkpointing="off", loss=loss, accumulator="float32")
    assert max(everything(distances(replace(causes, dropout="the same masks"), 1))) == 0


def switched_on(causes):
    return [n for n, choices in CHOICES.items() if getattr(causes, n) != str(next(iter(choices)))]


def taken_away(causes, names):
    return replace(causes, **{name: str(next(iter(CHOICES[name]))) for name in names})


@given(causes=any_causes, k=st.sampled_from(STEPS))
@settings(max_examples=60)
def test_a_run_differs_where_any_choice_has_an_effect_and_only_there(causes, k):
    idle = causes.without_effect(k)
    assert set(idle) <= set(switched_on(causes))
    differs = max(everything(distances(causes, k))) > ROUNDING
    assert differs == (len(idle) < len(switched_on(causes)))


LOOPS = ("checkpointing", "stepping", "schedule", "averaging", "loss_scale")


@given(causes=any_causes, k=st.sampled_from(STEPS))
@settings(max_examples=60)
def test_without_what_has_no_effect_in_the_loop_the_run_is_the_same(causes, k):
    for name in {*causes.without_effect(k)} & {*LOOPS}:
        run, without = train_with(causes, k), train_with(taken_away(causes, [name]), k)
        for found, other in zip(vars(run).values(), vars(without).values(), strict=True):
            assert torch.allclose(found, other, rtol=1e-4, atol=1e-5)


@given(causes=any_causes, k=st.sampled_from(STEPS))
@settings(max_examples=60)
def test_what_has_no_effect_in_the_net_is_equal_up_to_rounding_alone(causes, k):
    alone = {name: getattr(causes, name) for name in causes.without_effect(k) if name not in LOOPS}
    assert max(everything(distances(Causes(**alone), k))) < ROUNDING


@pytest.mark.parametrize(
    ("causes", "k", "idle"),
    [
        ({"normalisation": "GroupNorm", "dropout": "other masks"}, 8, ("normalisation",)),
        ({"normalisation": "BatchNorm"}, 1, ("normalisation",)),
        ({"checkpointing": "on"}, 4, ("checkpointing",)),
        ({"checkpointing": "on", "normalisation": "BatchNorm"}, 4, ()),
        ({"loss": "negatives, cached embeddings", "clipping": ONCE}, 2, ("loss", "clipping")),
        ({"stepping": EACH, "loss_scale": "grows in the window"}, 4, ("loss_scale",)),
        ({"schedule": EACH, "accumulator": "bfloat16"}, 1, ("schedule",)),
    ],
)
def test_a_choice_has_no_effect(causes, k, idle):
    assert Causes(**causes).without_effect(k) == idle


@pytest.mark.parametrize(
    ("causes", "said"),
    [
        ({}, "no cause, k = 8"),
        (
            {"normalisation": "GroupNorm", "dropout": "other masks"},
            "dropout other masks, k = 8; no effect here: GroupNorm",
        ),
        (
            {"normalisation": "GroupNorm", "dropout": "other masks", "clipping": ONCE},
            "dropout other masks, k = 8; no effect here: 2 more",
        ),
    ],
)
def test_a_harmless_choice_is_no_cause_and_is_said_to_have_no_effect(causes, said):
    panel = EquivalencePanel()
    panel.accumulation_steps.value = 8
    panel.only(**causes)
    assert panel.picture.verdict.get_text() == said


@pytest.mark.parametrize("k", STEPS)
def test_two_passes_move_running_statistics_twice(k):
    causes = Causes(normalisation="BatchNorm", loss="in-batch negatives")
    once = train_with(causes, k).statistics[1][:8]
    twice = train_with(replace(causes, loss="negatives, cached embeddings"), k).statistics[1][:8]
    ways = [1 - (1 - BN_MOMENTUM) ** moves for moves in (k, 2 * k)]
    assert (twice.norm() / once.norm()).item() == pytest.approx(ways[1] / ways[0], rel=0.1)


@given(causes=any_causes, k=st.sampled_from(STEPS))
@few
def test_every_distance_is_a_number(causes, k):
    assert all(math.isfinite(distance) for distance in everything(distances(causes, k)))


def test_the_accumulated_gradient_is_that_of_the_course():
    (x, y, mask), *_ = draw_window(Causes(), 1, 0)
    net = SmallNet(Causes(), 1)
    full = full_batch_gradient(lambda_module(net, mask), mse_loss, x, y)
    assert compare(train_with(Causes(), 1).gradient, full).relative_difference < 1e-6
    cut = accumulated_gradient(lambda_module(net, mask[:4]), mse_loss, x, y, (4,) * 4)
    assert compare(train_with(Causes(), 4).gradient, cut).relative_difference < 1e-6


def lambda_module(net, mask):
    """The net as a module of one argument; without dropout all masks are ones."""
    module = nn.Module()
    module.net = net
    module.forward = lambda x: net(x, mask)
    return module


@pytest.mark.parametrize(("schedule", "share"), [(ONCE, 1 / WARM_UP), (EACH, 4 / WARM_UP)])
def test_the_first_update_is_sgd_at_the_start_of_the_warm_up(schedule, share):
    run = train_with(Causes(schedule=schedule), 4)
    expected = run.weights[0] - LR * share * (run.gradient + WEIGHT_DECAY * run.weights[0])
    assert torch.allclose(run.weights[1], expected, atol=1e-7)


def test_the_moving_average_moves_once_for_each_update():
    run = train_with(Causes(), 4)
    average = run.weights[0].double()
    for weights, averaged in zip(run.weights[1:], run.averaged[1:], strict=True):
        average = EMA_DECAY * average + (1 - EMA_DECAY) * weights.double()
        assert torch.allclose(averaged, average)


def test_clipping_bounds_the_gradient_and_keeps_its_direction_only_when_done_once():
    free, once, each = (train_with(Causes(clipping=c), 4).gradient for c in ("off", ONCE, EACH))
    assert once.norm().item() == pytest.approx(MAX_NORM, rel=1e-4)
    assert each.norm().item() <= MAX_NORM * 1.0001
    assert torch.allclose(once / once.norm(), free / free.norm(), atol=1e-5)
    assert not torch.allclose(each / each.norm(), free / free.norm(), atol=1e-2)


def test_a_scale_that_doubles_in_the_window_halves_its_first_half():
    window, net = draw_window(Causes(), 2, 0), SmallNet(Causes(), 1)
    first, second = (
        full_batch_gradient(lambda_module(net, mask), mse_loss, x, y) for x, y, mask in window
    )
    run = train_with(Causes(loss_scale="grows in the window"), 2)
    assert torch.allclose(run.gradient, (first / 2 + second) / 2, atol=1e-6)


@pytest.mark.parametrize("k", STEPS)
def test_running_means_move_k_times_and_with_the_corrected_momentum_about_as_far_as_once(k):
    def way(normalisation, k):
        return train_with(Causes(normalisation=normalisation), k).statistics[1][:8].norm().item()

    once = way("BatchNorm", 1)
    moved = 1 - (1 - BN_MOMENTUM) ** k
    assert way("BatchNorm", k) == pytest.approx(once * moved / BN_MOMENTUM, rel=0.1)
    assert way("BatchNorm, momentum corrected", k) == pytest.approx(once, rel=0.1)
    corrected = SmallNet(Causes(normalisation="BatchNorm, momentum corrected"), k).norm.momentum
    assert (1 - corrected) ** k == pytest.approx(1 - BN_MOMENTUM)


def test_checkpointing_moves_running_statistics_twice_and_nothing_else():
    batch_norm = Causes(normalisation="BatchNorm")
    measured = distances(replace(batch_norm, checkpointing="on"), 1)
    assert (measured.gradient, *measured.weights, *measured.averaged) == (0,) * (3 + 2 * UPDATES)
    assert measured.statistics[1] == pytest.approx(0.9)  # 1.9 in place of 1, as in the report
    mended = distances(replace(batch_norm, checkpointing="on, momentum corrected"), 1)
    assert max(mended.statistics) < ROUNDING


def test_frozen_statistics_do_not_move():
    run = train_with(Causes(normalisation="BatchNorm, frozen"), 4)
    assert torch.equal(run.statistics, run.statistics[:1].expand_as(run.statistics))
    assert train_with(Causes(), 4).statistics.numel() == 0


def test_a_run_is_kept_and_leaves_threads_and_random_state_as_they_were():
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    causes = Causes(dropout="other masks", checkpointing="on")
    assert train_with(causes, 2) is train_with(causes, 2)
    train_with.cache_clear()
    again, threads_then = train_with(causes, 2), torch.get_num_threads()
    assert torch.equal(again.weights, train_with(causes, 2).weights)
    assert torch.equal(before, torch.random.get_rng_state())
    assert threads == threads_then


def test_only_their_own_masks_differ_between_runs():
    same, other = Causes(dropout="the same masks"), Causes(dropout="other masks")
    masks = {
        (causes, k): torch.cat([mask for *_, mask in draw_window(causes, k, 3)])
        for causes in (same, other)
        for k in (1, 4)
    }
    assert torch.equal(masks[same, 1], masks[same, 4])
    assert not torch.equal(masks[other, 1], masks[other, 4])
    assert set(masks[other, 4].flatten().tolist()) == {0, 2}
    for k in (1, 4):
        x, y = (
            torch.cat(column) for column in list(zip(*draw_window(other, k, 0), strict=True))[:2]
        )
        assert torch.equal(x, draw_window(same, 1, 5)[0][0])
        assert torch.equal(y, draw_window(same, 1, 5)[0][1])


@given(k=st.sampled_from(STEPS), dropping=st.booleans())
@few
def test_cached_embeddings_in_two_passes_give_the_full_gradient(k, dropping):
    causes = Causes(dropout="other masks" if dropping else "off")
    window, net = draw_window(causes, k, 0), SmallNet(causes, k)
    for (x, _, mask), from_above in zip(window, embedding_gradients(net, window), strict=True):
        net(x, mask).backward(from_above)
    two_passes = flat_gradient(net)
    net.zero_grad()
    outputs = torch.cat([net(x, mask) for x, _, mask in window])
    contrastive_loss(outputs, torch.cat([y for _, y, _ in window])).backward()
    assert compare(two_passes, flat_gradient(net)).relative_difference < 1e-6


def test_the_first_pass_leaves_no_gradient():
    net, window = SmallNet(Causes(), 4), draw_window(Causes(), 4, 0)
    embedding_gradients(net, window)
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("value", ["batchnorm", "", None, True])
def test_a_choice_that_is_none_is_refused_by_name(value):
    with pytest.raises(ValueError, match="normalisation must be one of 'none', 'BatchNorm'"):
        Causes(normalisation=value)


def test_a_cause_that_is_none_is_refused():
    with pytest.raises(TypeError):
        Causes(weather="bad")


@pytest.mark.parametrize("k", [0, 3, 16, -1])
def test_steps_that_do_not_cut_16_samples_equally_are_refused(k):
    with pytest.raises(ValueError, match=f"accumulation_steps must be .*, got {k}"):
        train_with(Causes(), k)


@pytest.mark.parametrize("k", [2.0, "4", True, None])
def test_steps_that_are_no_whole_number_are_refused(k):
    with pytest.raises(TypeError, match="accumulation_steps must be"):
        distances(Causes(), k)


@pytest.mark.parametrize(("momentum", "times"), [(1.5, 2), (-0.1, 2), (0.1, 0)])
def test_a_momentum_that_can_not_be_corrected_is_refused(momentum, times):
    with pytest.raises(ValueError, match=r"(momentum|times) must be"):
        corrected_momentum(momentum, times)


@given(momentum=st.floats(0, 1), times=st.integers(1, 20))
def test_moves_with_the_corrected_momentum_go_as_far_as_one(momentum, times):
    average = 0.0
    for _ in range(times):
        average += corrected_momentum(momentum, times) * (10 - average)
    assert average == pytest.approx(10 * momentum, abs=1e-6)


# the nets for measurements


@pytest.mark.parametrize("k", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("norm", "equal"),
    [
        (lambda: nn.BatchNorm1d(8), False),
        (lambda: nn.BatchNorm1d(8).eval(), True),
        (lambda: nn.GroupNorm(2, 8), True),
        (lambda: nn.LayerNorm(8), True),
    ],
)
def test_only_batch_norm_in_training_misses_the_full_batch(norm, equal, k):
    x, y = random_numbers(64, 5).split([4, 1], dim=1)
    batch = net_with(norm()), mse_loss, x, y
    full = full_batch_gradient(*batch)
    error = compare(accumulated_gradient(*batch, (64 // k,) * k), full).relative_difference
    assert error < 1e-6 if equal else error > 0.05


def test_the_nets_are_the_same_every_time_and_draw_nothing_from_the_caller():
    before = torch.random.get_rng_state()
    for make in (
        lambda: encoder(0.5),
        lambda: net_with(nn.Identity()),
        lambda: random_numbers(3, 4),
    ):
        one, other = make(), make()
        if isinstance(one, nn.Module):
            one, other = (
                torch.cat([p.flatten() for p in net.parameters()]) for net in (one, other)
            )
        assert torch.equal(one, other)
    parts = random_numbers(8, 2, 4).chunk(2)
    whole_window_gradient(encoder(0.5), lambda z: z.square().mean(), parts, first_seed=0)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_whole_windows_masks_follow_from_its_seeds():
    net, parts = encoder(0.5), random_numbers(8, 2, 4).chunk(2)
    seeds = [0, 0, 1]
    first, again, other = (
        whole_window_gradient(net, lambda z: z.square().mean(), parts, seed) for seed in seeds
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_float32_accumulation_is_about_as_far_from_the_exact_mean_as_the_full_batch():
    x, y = random_numbers(512, 5).split([4, 1], dim=1)
    net = net_with(nn.Identity())
    exact = full_batch_gradient(copy.deepcopy(net).double(), mse_loss, x.double(), y.double())
    errors = {
        k: compare(
            accumulated_gradient(net, mse_loss, x, y, (512 // k,) * k).double(), exact
        ).relative_difference
        for k in (1, 2, 8, 64)
    }
    assert max(errors.values()) < 10 * max(errors[1], 1e-7)
    unscaled = accumulated_gradient(net, mse_loss, x, y, (256, 256), "none").double()
    assert compare(unscaled, exact).relative_difference == pytest.approx(1, abs=1e-5)


# the picture and the panel


def heights(line):
    return np.asarray(line.get_ydata(), float).tolist()


PREFIXES = {
    "checkpointing": "checkpointing",
    "dropout": "dropout",
    "clipping": "clipping",
    "stepping": "optimizer",
    "schedule": "scheduler",
    "averaging": "EMA",
    "loss_scale": "loss scale",
    "accumulator": "accumulator",
}


def said_of(panel, k):
    """The causes switched on in words, then the choices that have no effect."""
    chosen = Causes(**{name: menu.value for name, menu in panel.causes.items()})
    on, idle = [], []
    for name, menu in panel.causes.items():
        if menu.value != menu.options[0]:
            words = f"{PREFIXES.get(name, '')} {menu.value}".strip()
            (idle if name in chosen.without_effect(k) else on).append(words)
    said = (" + ".join(on) or "no cause") if len(on) <= 3 else f"{len(on)} causes"
    more = " + ".join(idle) if len(on + idle) <= 2 else f"{len(idle)} more"
    return f"{said}, k = {k}" + (f"; no effect here: {more}" if idle else "")


def written(distance):
    if distance < 1e-5:
        return "rounding"
    if distance >= 99.5:
        return str(round(distance))
    return f"{distance:.2g}" if distance >= 0.01 else f"{distance:.1g}".replace("-", "−")


def as_drawn(again):
    """What stands for a distance: itself, or the floor of the axis for 0."""
    return pytest.approx([max(distance, 1e-9) for distance in again], rel=0.005, abs=2e-6)


def assert_equivalence_panel_is_right(panel):
    chosen = tuple((name, control.value) for name, control in panel.causes.items())
    k, updates = panel.accumulation_steps.value, panel.updates.value
    again, drawn = distances_again(chosen, k), panel.picture.lines
    assert_readable(panel.picture)
    assert_axes_are_right(panel.picture, max(max(line[1:] or line) for line in again.values()))
    (place,) = panel.picture.gradient.get_xdata()
    assert list(panel.picture.gradient.axes.get_xticks()) == [place]  # the name beneath it
    assert heights(panel.picture.gradient) == as_drawn(again["gradient"])
    far = {"gradient": heights(panel.picture.gradient)[0]}
    for name, line in drawn.items():
        expected = again.get(name, [])[1:]
        assert list(line.get_xdata()) == list(range(1, len(expected) + 1))
        assert heights(line) == as_drawn(expected)
        if expected:
            far[name] = heights(line)[updates - 1]
    assert list(panel.picture.now.get_xdata()) == [updates, updates]
    assert heights(panel.picture.now) == list(panel.picture.now.axes.get_ylim())
    verdict = said_of(panel, k)
    assert panel.picture.verdict.get_text() == verdict
    off = ", ".join(f"{name} {written(d)}" for name, d in far.items() if d >= 1e-5)
    assert panel.table.heading == (f"after {updates} update{'s' * (updates > 1)}", "off by")
    assert panel.table.rows == tuple((name, written(d)) for name, d in far.items())
    assert panel.table.closing == f"{verdict}. {f'Off: {off}' if off else EQUAL}"
    assert panel.alt == f"Causes of difference, one switch each: {panel.table.closing}"
    assert verdict in picture_text(panel)


EQUAL = "All equal up to rounding"


def assert_axes_are_right(picture, highest):
    """Two axes of one scale, from 0 and the floor to above all; each line in its own look."""
    left, right = picture.figure.axes
    assert left.get_ylim() == right.get_ylim() == (1e-9, pytest.approx(max(1000, highest)))
    for axes in (left, right):
        assert axes.get_yscale() == "log"
        assert axes.get_yticks().tolist() == [1e-9, 1e-7, 1e-5, 1e-3, 0.1, 1, 10, 1000]
        floor = axes.patches[0].get_extents().transformed(axes.transData.inverted())
        assert (floor.y0, floor.y1) == pytest.approx((1e-9, 1e-5))
    shown = [tick.label1.get_text() for tick in left.yaxis.get_major_ticks()]
    assert shown == ["0", "$10^{-7}$", "$10^{-5}$", "0.001", "0.1", "1", "10", "1000"]
    assert [tick.label1.get_text() for tick in left.xaxis.get_major_ticks()] == ["gradient"]
    assert right.get_xticks().tolist() == list(range(1, 9))
    assert (right.get_xlabel(), left.get_ylabel()) == ("updates", "distance to whole batches")
    legend = [text.get_text() for text in right.get_legend().get_texts()]
    assert legend == ["in the table", "weights", "moving average", "running statistics"]
    looks = [(line.get_color(), line.get_linestyle()) for line in picture.lines.values()]
    assert looks == [("#0072B2", "-"), ("#0072B2", ":"), ("#777777", "--")]
    handles = right.get_legend().get_lines()[1:]
    assert [(line.get_color(), line.get_linestyle()) for line in handles] == looks
    (word,) = right.texts
    assert word.get_text() == "rounding"
    box, first = word.get_window_extent(), right.transData.transform((1, 1e-7))[0]
    assert box.x1 < first - 10  # no marker can reach it
    bottom, top = right.transData.transform([(1, 1e-9), (1, 1e-5)])[:, 1]
    assert bottom < box.y0 < box.y1 < top


def test_controls_in_any_order_leave_the_equivalence_panel_right():
    stays_right(EquivalencePanel(), assert_equivalence_panel_is_right, seed=0, moves=6)


@pytest.mark.parametrize(
    ("third", "said"),
    [
        ({"loss": "negatives, cached embeddings"}, "negatives, cached embeddings, k = 4"),
        ({"loss_scale": "grows in the window"}, "; no effect here: 1 more"),
    ],
)
def test_the_longest_three_choices_have_room_above_the_picture(third, said):
    panel = EquivalencePanel()
    panel.only(
        normalisation="BatchNorm, momentum corrected",
        checkpointing="on, momentum corrected",
        **third,
    )
    assert panel.picture.verdict.get_text().endswith(said)
    assert_readable(panel.picture)


def test_the_second_choice_everywhere_is_drawn_where_it_is():
    panel = EquivalencePanel()
    panel.accumulation_steps.value, panel.updates.value = 8, 1
    panel.only(**{name: values(control)[1] for name, control in panel.causes.items()})
    assert_equivalence_panel_is_right(panel)
    assert [round(heights(panel.picture.lines[name])[0]) for name in (WEIGHTS, AVERAGED)] == [
        round(float(row[1])) for row in panel.table.rows[1:3]
    ]
    assert min(heights(panel.picture.lines[name])[0] for name in (WEIGHTS, AVERAGED)) > 100


@pytest.mark.parametrize("seed", range(40))
def test_distances_are_those_of_the_same_runs_in_float64(seed):
    chance = random.Random(seed)
    chosen = {name: str(chance.choice(list(choices))) for name, choices in CHOICES.items()}
    k = chance.choice(STEPS)
    measured, again = distances(Causes(**chosen), k), distances_again(tuple(chosen.items()), k)
    close = {name: pytest.approx(line, rel=0.005, abs=2e-6) for name, line in again.items()}
    assert [measured.gradient] == close["gradient"]
    assert list(measured.weights) == close[WEIGHTS]
    assert list(measured.averaged) == close[AVERAGED]
    assert list(measured.statistics or ()) == close.get(STATISTICS, [])


def test_the_panel_opens_on_batch_norm():
    assert EquivalencePanel().table.text() == (
        "after 8 updates     off by\n"
        "gradient              0.59\n"
        "weights               0.42\n"
        "moving average        0.45\n"
        "running statistics    0.72\n"
        "BatchNorm, k = 4. Off: gradient 0.59, weights 0.42, moving average 0.45, "
        "running statistics 0.72"
    )


def test_without_batch_norm_no_statistics_are_left_in_the_picture():
    panel = EquivalencePanel()
    assert heights(panel.picture.lines[STATISTICS])
    panel.all_off.click()
    assert heights(panel.picture.lines[STATISTICS]) == []
    assert panel.table.closing == "no cause, k = 4. All equal up to rounding"


def test_many_causes_at_once_draw_one_picture():
    panel, drawn = EquivalencePanel(), []
    panel.screen.observe(lambda change: drawn.append(change), "value")
    panel.only(dropout="the same masks", loss="negatives, cached embeddings")
    assert len(drawn) == 1
    assert [panel.causes[name].value for name in ("normalisation", "dropout", "loss")] == [
        "none",
        "the same masks",
        "negatives, cached embeddings",
    ]
    panel.only(**{name: values(control)[-1] for name, control in panel.causes.items()})
    assert panel.table.closing.startswith("6 causes, k = 4; no effect here: 4 more. Off: ")


def test_causes_that_do_not_exist_are_refused_and_nothing_moves():
    panel = EquivalencePanel()
    before = panel.screen.value
    with pytest.raises(ValueError, match="dropout must be one of"):
        panel.only(loss="in-batch negatives", dropout="heavy")
    with pytest.raises(TypeError):
        panel.only(weather="bad")
    assert panel.screen.value == before


def off(panel):
    return [name for name, shown in panel.table.rows if shown != "rounding"]


def test_the_targets_of_the_equivalence_panel_have_the_answers_given():
    panel = EquivalencePanel()
    panel.only()
    for panel.accumulation_steps.value in STEPS:
        assert off(panel) == []
        assert max(everything(panel.measured)) < 1e-6
    panel.accumulation_steps.value = 4
    shown = {}
    for name, control in panel.causes.items():
        for choice in values(control)[1:]:
            panel.only(**{name: choice})
            shown.setdefault(tuple(off(panel)), []).append(name)
    assert shown["moving average",] == ["averaging"]
    assert shown["weights", "moving average"] == ["schedule"]

    panel.accumulation_steps.value = 1
    for choice, left in (("on", ["running statistics"]), ("on, momentum corrected", [])):
        panel.only(normalisation="BatchNorm", checkpointing=choice)
        assert off(panel) == left
    panel.only(normalisation="BatchNorm", loss="negatives, cached embeddings")
    assert off(panel) == ["running statistics"]
    for also in ({"dropout": "other masks"}, {"accumulator": "bfloat16"}):
        panel.only(normalisation="BatchNorm", **also)
        assert "gradient" in off(panel)

    panel.accumulation_steps.value = 4
    panel.only(dropout="other masks", loss="in-batch negatives")
    assert "gradient" in off(panel)
    panel.only(dropout="the same masks", loss="negatives, cached embeddings")
    assert off(panel) == []

    plain = distances(Causes(normalisation="BatchNorm"), 4).statistics[-1]
    corrected = distances(Causes(normalisation="BatchNorm, momentum corrected"), 4).statistics[-1]
    assert 8 < plain / corrected < 10


def test_a_distance_above_the_axis_raises_it_and_0_stands_on_it():
    picture = EquivalencePicture(updates=2)
    picture.update(0.0, {WEIGHTS: [1e-20, 1e9]}, updates=1, verdict="far")
    assert heights(picture.gradient) == [LOWEST]
    assert heights(picture.lines[WEIGHTS]) == [LOWEST, 1e9]
    assert [axes.get_ylim() for axes in picture.figure.axes] == [(LOWEST, 1e9)] * 2
    picture.update(0.0, {}, updates=1, verdict="near")
    assert [axes.get_ylim() for axes in picture.figure.axes] == [(LOWEST, HIGHEST)] * 2


def test_the_equivalence_panel_is_a_widget_a_described_image_and_a_table():
    panel = EquivalencePanel()
    data, metadata = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["image/png"].startswith("iVBOR")
    assert metadata["image/png"]["alt"] == panel.alt == f"{panel.title}: {panel.table.closing}"
    assert data["text/plain"] == panel.table.text()


def test_moving_the_equivalence_panels_controls_back_shows_the_same_picture_again():
    panel = EquivalencePanel()
    before, start = panel.screen.value, [control.value for control in panel.controls]
    assert len({panel.screen.value for _ in move_at_random(panel, moves=12, seed=1)}) > 5
    for control, value in zip(panel.controls, start, strict=True):
        control.value = value
    assert panel.screen.value == before


INSIDE = ("normalisation", "checkpointing", "loss", "dropout", "accumulator")
ONCE_A_WINDOW = ("clipping", "stepping", "schedule", "averaging", "loss_scale")


@pytest.mark.parametrize(
    ("shown", "names"),
    [
        (INSIDE, ["in the table", "weights", "moving average", "running statistics"]),
        (ONCE_A_WINDOW, ["in the table", "weights", "moving average"]),
    ],
)
def test_the_legend_names_the_lines_that_the_panels_choices_can_give(shown, names):
    _, right = EquivalencePanel(shown).picture.figure.axes
    assert [text.get_text() for text in right.get_legend().get_texts()] == names


@pytest.mark.parametrize("shown", [INSIDE, ONCE_A_WINDOW])
def test_a_panel_of_some_causes_has_their_menus_and_leaves_the_others_off(shown):
    panel = EquivalencePanel(shown)
    assert tuple(panel.causes) == shown
    assert len(panel.controls) == len(shown) + 2
    assert panel.measured.weights[-1] > 0.01 or panel.measured.gradient > 0.01
    panel.only()
    assert panel.table.closing == "no cause, k = 4. All equal up to rounding"


def test_a_panel_of_some_causes_measures_what_the_whole_panel_does():
    some, every = EquivalencePanel(ONCE_A_WINDOW), EquivalencePanel()
    for name in ONCE_A_WINDOW:
        for choice in some.causes[name].options:
            some.only(**{name: choice})
            every.only(**{name: choice})
            assert some.table == every.table


def test_causes_that_can_not_be_shown_are_refused():
    with pytest.raises(ValueError, match=r"shown must hold one or more of .*, got \(\)"):
        EquivalencePanel(())
    with pytest.raises(ValueError, match=r"each of shown must be one of .*, got 'drop'"):
        EquivalencePanel(("drop",))
    panel = EquivalencePanel(("dropout",))
    before = panel.table
    with pytest.raises(ValueError, match="each of causes must be one of 'dropout', got 'loss'"):
        panel.only(loss="in-batch negatives")
    assert panel.table is before
