class TrainingPanel:
    pass
