"""MrOS Sleep Study, visit 2.

Leak hazard: these are men of `mros1` years later, under the same subject ids. Training on one and testing on the
other shows new nights, not new people.
"""

from sscf.data.datasets._sleep import nsrr_dataset

DATASET = nsrr_dataset(
    "mros2",
    "MrOS Sleep Study, visit 2",
    study="mros",
    edfs="visit2/mros-visit2-*.edf",
    subjects=1026,
    rate="256",
    channels="C4-M1; E1-M2",
    eeg=("C4-M1", "C4-A1"),
    eog=("E1-M2", "LOC-A2"),
    citation="Blackwell et al., Associations between sleep architecture and sleep-disordered breathing and cognition "
    "in older community-dwelling men, J Am Geriatr Soc 59(12):2217-2225, 2011; "
    "Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
    same_people=("mros1",),
)
