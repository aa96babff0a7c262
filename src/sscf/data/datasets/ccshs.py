"""Cleveland Children's Sleep and Health Study, the published visit (`trec`, age 16-19)."""

from sscf.data.datasets._sleep import nsrr_dataset

DATASET = nsrr_dataset(
    "ccshs",
    "Cleveland Children's Sleep and Health Study",
    study="ccshs",
    edfs="ccshs-trec-*.edf",
    subjects=515,
    rate="128",
    channels="C4-A1; LOC-A2",
    eeg=("C4-A1", "C4-M1"),
    eog=("LOC-A2", "E1-M2"),
    citation="Rosen et al., Prevalence and risk factors for sleep-disordered breathing in 8- to 11-year-old children: "
    "association with race and prematurity, J Pediatr 142(4):383-389, 2003; "
    "Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
)
