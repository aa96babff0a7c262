"""Sleep Heart Health Study, visit 1. EEG (C4-A1) at 125 Hz and EOG(L) at 50 Hz in one EDF."""

from sscf.data.datasets._sleep import nsrr_dataset

DATASET = nsrr_dataset(
    "shhs1",
    "Sleep Heart Health Study, visit 1",
    study="shhs",
    edfs="shhs1/shhs1-*.edf",
    subjects=5793,
    rate="125/50",
    channels="EEG (C4-A1); EOG(L)",
    eeg=("EEG",),
    eog=("EOG(L)", "EOG (L)", "EOGL"),
    citation="Quan et al., The Sleep Heart Health Study: design, rationale, and methods, Sleep 20(12):1077-1085, 1997; "
    "Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
)
