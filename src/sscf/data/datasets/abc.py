"""Apnea, Bariatric surgery, and CPAP study: up to three nights (baseline, month09, month18) of one subject."""

from sscf.data.datasets._sleep import nsrr_dataset

DATASET = nsrr_dataset(
    "abc",
    "Apnea, Bariatric surgery, and CPAP study",
    study="abc",
    edfs="*/abc-*.edf",
    subjects=49,
    rate="256",
    channels="F4-M1; E1-M2",
    eeg=("F4-M1",),
    eog=("E1-M2",),
    citation="Bakker et al., Gastric banding surgery versus continuous positive airway pressure for obstructive sleep "
    "apnea: a randomized controlled trial, Am J Respir Crit Care Med 197(8):1080-1083, 2018; "
    "Zhang et al., The National Sleep Research Resource, JAMIA 25(10):1351-1358, 2018",
)
