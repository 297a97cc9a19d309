"""The Python of docs/medical-and-remote-sensing.md reads files that nibabel and pydicom wrote."""

import re
from pathlib import Path

import numpy as np
import pytest

import genpr

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$",
    (Path(__file__).parents[2] / "docs" / "medical-and-remote-sensing.md").read_text(),
    re.MULTILINE | re.DOTALL,
)
OPTIONS = {"extractor": "pixels", "k": 2, "intervals": False, "control": False, "device": "cpu"}
SHAPE = (20, 18, 5)


def hounsfield(seed):
    rng = np.random.default_rng(seed)
    return np.where(rng.random((2, *SHAPE)) < 0.5, rng.normal(40, 60, (2, *SHAPE)), -1000).round()


def write_nifti(folder, volumes):
    """As a scanner stores them: unsigned integers with slope and intercept, in the order left, posterior, superior."""
    nibabel = pytest.importorskip("nibabel")
    for number, volume in enumerate(volumes):
        header = nibabel.Nifti1Header()
        header.set_data_dtype(np.int16)
        header.set_slope_inter(2, -1024)
        image = nibabel.Nifti1Image(volume[::-1, ::-1], np.diag([-1.0, -1, 1, 1]), header)
        nibabel.save(image, folder / f"{number}.nii.gz")


def write_dicom(folder, volumes):
    """One file per slice; those of the second volume have 0 as white."""
    pydicom = pytest.importorskip("pydicom", "3")
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    for number, volume in enumerate(volumes):
        for at in range(SHAPE[2]):
            file = Dataset()
            file.file_meta = FileMetaDataset()
            file.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
            file.file_meta.MediaStorageSOPClassUID = file.SOPClassUID = CTImageStorage
            file.file_meta.MediaStorageSOPInstanceUID = file.SOPInstanceUID = generate_uid()
            file.Rows, file.Columns = SHAPE[:2]
            file.SamplesPerPixel, file.BitsAllocated, file.BitsStored, file.HighBit = 1, 16, 12, 11
            file.PixelRepresentation, file.RescaleSlope, file.RescaleIntercept = 0, 1, -1024
            stored = (volume[..., at] + 1024).astype(np.uint16)
            file.PhotometricInterpretation = "MONOCHROME1" if number else "MONOCHROME2"
            file.PixelData = (4095 - stored if number else stored).tobytes()
            pydicom.dcmwrite(folder / f"{number}-{at}.dcm", file, enforce_file_format=True)


@pytest.mark.parametrize(
    ("library", "write", "turn"),
    [
        ("nibabel", write_nifti, lambda volume: np.rot90(volume).transpose(2, 0, 1)),
        ("pydicom", write_dicom, lambda volume: volume.transpose(2, 0, 1)),
    ],
)
def test_python_on_the_page_scores_the_values_of_the_files(tmp_path, monkeypatch, library, write, turn):
    sides = [(2 * (hounsfield(seed) // 2)) for seed in (0, 1)]  # the step of the NIfTI files
    for name, side in zip(("real", "fake"), sides, strict=True):
        (tmp_path / name).mkdir()
        write(tmp_path / name, side)
    (code,) = [block for block in BLOCKS if f"import {library}\n" in block]
    monkeypatch.chdir(tmp_path)
    scores, score = [], genpr.score
    monkeypatch.setattr(
        genpr, "score", lambda *sources, **given: scores.append(score(*sources, **given, **OPTIONS))
    )
    exec(compile(code, "page", "exec"), {})
    (found,) = scores
    slices = [np.concatenate([turn(volume) for volume in side]) for side in sides]
    window = [np.floor((each + 160) * (255 / 400) + 0.5).clip(0, 255).astype(np.uint8) for each in slices]
    expected = score(*window, **OPTIONS)
    assert found.real.n == 2 * SHAPE[2]
    assert {name: each.value for name, each in found.metrics.items()} == {
        name: each.value for name, each in expected.metrics.items()
    }
    assert found.real.decoder["value_range"] == "-160:240"


def test_page_has_one_program_for_each_library():
    for library in ("nibabel", "pydicom"):
        assert sum(f"import {library}\n" in block for block in BLOCKS) == 1
