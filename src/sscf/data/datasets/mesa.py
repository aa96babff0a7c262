"""Multi-Ethnic Study of Atherosclerosis, sleep ancillary study. EEG1 is Fz-Cz, EOG-L is E1-Fpz, as recorded."""

from sscf.data.datasets._sleep import nsrr_dataset

DATASET = nsrr_dataset(
    "mesa",
    "Multi-Ethnic Study of Atherosclerosis, sleep",
    study="mesa",
    edfs="mesa-sleep-*.edf",
    subjects=2056,
    rate="256",
    channels="EEG1 (Fz-Cz); EOG-L (E1-Fpz)",
    eeg=("EEG1",),
    eog=("EOG-L", "EOGL"),
    citation="Chen et al., Racial/ethnic differences in sleep disturbances: the Multi-Ethnic Study of Atherosclerosis "
    "(MESA), Sleep 38(6):877-888, 2015; "
    "Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
)
