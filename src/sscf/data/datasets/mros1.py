"""MrOS Sleep Study, visit 1.

Leak hazard: `mros2` is the second visit of some of the same men (same subject ids). Training on one and testing on
the other shows new nights, not new people.

The NSRR lists subjects whose staging was lost or could not be exported; they are left out and listed.
"""

from sscf.data.datasets._sleep import nsrr_dataset

_WRONG = ("aa2033", "aa3905", "aa4225", "aa4398", "aa4928", "aa5622", "aa5660", "aa5781")
_NONE = ("aa2159", "aa2180", "aa4156")

DATASET = nsrr_dataset(
    "mros1",
    "MrOS Sleep Study, visit 1",
    study="mros",
    edfs="visit1/mros-visit1-*.edf",
    subjects=2907,
    rate="256",
    channels="C4-A1; LOC-A2",
    eeg=("C4-A1", "C4-M1"),
    eog=("LOC-A2", "E1-M2"),
    citation="Blackwell et al., Associations between sleep architecture and sleep-disordered breathing and cognition "
    "in older community-dwelling men, J Am Geriatr Soc 59(12):2217-2225, 2011; "
    "Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
    exclude={
        **{f"mros-visit1-{subject}": "the staging in its XML is wrong, says the NSRR" for subject in _WRONG},
        **{f"mros-visit1-{subject}": "its staging could not be exported, says the NSRR" for subject in _NONE},
    },
    same_people=("mros2",),
)
