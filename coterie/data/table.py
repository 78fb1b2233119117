"""Your own table, in a CSV or Parquet file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from coterie.data.keyed import held_out
from coterie.data.source import Dataset, Split, sources
from coterie.errors import InputError, unknown

if TYPE_CHECKING:
    import pandas as pd


@sources.register("table")
@dataclass(frozen=True)
class Table:
    """Your own table: a CSV or Parquet file with a row a sample, standardised."""

    path: str  # the file
    target: str = ""  # column to predict; empty: the last one
    task: Literal["classification", "regression"] = "classification"  # what the target is
    user: str = ""  # column that says who made each sample; empty: nobody knows
    test_fraction: float = 0.2  # held out for tests
    seed: int = 0  # another seed, other samples held out

    def load(self) -> Dataset:
        """The columns as features, in units of their deviation over the train rows."""
        path = Path(self.path).expanduser()
        frame = read_frame(path)
        target = self.target or str(frame.columns[-1])
        for column in filter(None, (target, self.user)):
            if column not in frame.columns:
                raise unknown(f"column of {path}:", column, [str(c) for c in frame.columns])
        features = _numbers(frame.drop(columns=[target, *filter(None, [self.user])]), path)
        targets, classes = self._targets(frame[target], path)
        users = _codes(frame[self.user], path)[0] if self.user else None
        train, test = held_out(len(frame), self.test_fraction, self.seed)
        whole = Split(_standardised(features, train), targets, users)
        parts = whole.take(train), whole.take(test)
        return Dataset(path.stem, *parts, classes, (0.0,), (1.0,), per_user_test=bool(self.user))

    def _targets(self, column: pd.Series[str], path: Path) -> tuple[np.ndarray, int]:
        if self.task == "regression":
            return _numbers(column.to_frame(), path).astype(np.float32), 0
        fractional = column.dtype.kind == "f" and bool((column.dropna() % 1 != 0).any())
        if fractional:
            raise InputError(
                f"column {column.name!r} of {path} has fractional values, which are no classes; "
                'set task = "regression"'
            )
        return _codes(column, path)


def read_frame(path: Path) -> pd.DataFrame:
    """The rows of a CSV or Parquet file."""
    if not path.is_file():
        raise InputError(f"no file {str(path)!r}; give the path of a CSV or Parquet file")
    import pandas as pd  # takes half a second, and few runs read a table

    try:
        frame = pd.read_parquet(path) if path.suffix.lower() == ".parquet" else pd.read_csv(path)
    except ImportError:
        raise InputError(f"{path} needs pyarrow: pip install 'coterie[parquet]'") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if len(frame) < 2 or len(frame.columns) < 2:
        rows, columns = frame.shape
        raise InputError(f"{path} needs 2 rows and 2 columns or more, got {rows} and {columns}")
    return frame


def _numbers(frame: pd.DataFrame, path: Path) -> np.ndarray:
    """Columns of numbers: float64 [N, D]."""
    words = [str(name) for name in frame.columns if frame[name].dtype.kind not in "fiub"]
    if words:
        raise InputError(
            f"columns of {path} that are not numbers: {', '.join(words)}; "
            "encode them as numbers or remove them"
        )
    numbers = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    whole = np.isfinite(numbers).all(axis=0)
    gaps = [str(name) for name, good in zip(frame.columns, whole, strict=True) if not good]
    if gaps:
        raise InputError(
            f"columns of {path} with missing or infinite values: {', '.join(gaps)}; "
            "fill or remove those rows"
        )
    return numbers


def _codes(column: pd.Series[str], path: Path) -> tuple[np.ndarray, int]:
    """Values as whole numbers in the order of the values, and how many values there are."""
    if column.isna().any():
        raise InputError(
            f"column {column.name!r} of {path} has missing values; fill or remove them"
        )
    plain = column.astype(str) if column.dtype.kind == "O" else column
    values, codes = np.unique(plain.to_numpy(), return_inverse=True)
    return codes.astype(np.int64), len(values)


def _standardised(features: np.ndarray, train: np.ndarray) -> np.ndarray:
    mean, std = features[train].mean(axis=0), features[train].std(axis=0)
    scaled = (features - mean) / np.where(std > 0, std, 1)
    return np.asarray(scaled, dtype=np.float32)
