"""Cleveland Family Study, visit 5.

The subjects are members of families: relatives may stand on both sides of a split by subject. The paper writes C4-M1
and LOC-M2; the files call the mastoids A1 and A2.
"""

from sscf.data.datasets._sleep import nsrr_dataset

DATASET = nsrr_dataset(
    "cfs",
    "Cleveland Family Study, visit 5",
    study="cfs",
    edfs="cfs-visit5-*.edf",
    subjects=735,
    rate="128",
    channels="C4-M1; LOC-M2",
    eeg=("C4-M1", "C4-A1"),
    eog=("LOC-M2", "LOC-A2", "E1-M2"),
    citation="Redline et al., The familial aggregation of obstructive sleep apnea, Am J Respir Crit Care Med "
    "151(3):682-687, 1995; Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
)
