"""What correctness follows: the category of the operator, or the method (generator) that made the kernel.

Logistic models of "this pair is right" on the one, on the other and on both, each against the model that knows neither,
by greatest likelihood. KernelBench-X reports so that category explains about three times as much as method. McFadden's
pseudo-R2 (1974, in Zarembka, Frontiers in Econometrics, ch. 4) is 1 - log L / log L0: the share of the null model's
deviance that a model takes away.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from kerneleval.records import Result, Score, UsageError
from kerneleval.scores.common.cells import by_generator, by_key, checked, pairs, primary
from kerneleval.scores.common.intervals import NOTHING, SEED, share
from kerneleval.scores.common.registry import DEFAULT, Setting

PERMUTATIONS = 2000
"""Rearrangements behind a permutation p-value, which is therefore never below 1 / 2001."""


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The three models of one run, and what each factor adds to the other."""

    taxonomy: str
    """What categories these are: ``category``, ``group``, or the name of the function given, without ``of_``."""
    right: Score
    """Share of the pairs that are right; Wilson's interval over tasks, n is the number of pairs."""
    null_log_likelihood: float
    """Log-likelihood of the model that knows the share alone; NaN where nothing, or everything, is right."""
    category: Model
    method: Model
    both: Model
    category_beyond_method: LikelihoodRatio
    method_beyond_category: LikelihoodRatio
    ratio: float
    """Pseudo-R2 of category over that of method; NaN: one of them is NaN, or both are 0."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One (task, generator, sample, direction) pair."""

    task: str
    category: str
    method: str
    sample: int
    right: bool
    """Right in every supported case, of which there is one."""


def of_category(result: Result) -> str:
    """The operator category, one of the seven."""
    return result.category


def of_group(result: Result) -> str:
    """The category in KernelBench-X's taxonomy; empty: none, and the row is left out."""
    return result.group


def rows(
    results: Iterable[Result], setting: Setting = DEFAULT, *, key: Callable[[Result], str] = of_category
) -> list[Row]:
    """The pairs of the primary machine, of all generators; those whose category (``key``) is empty are left out. A
    pair that a generator did not try is wrong. Raises UsageError where a cell comes twice, or the setting names a
    device that was not evaluated.
    """
    found = []
    for method, of in by_generator(primary(list(results), setting)).items():
        for pair in pairs(checked(of), DEFAULT):
            category = key(pair.cells[0])
            row = Row(task=pair.task, category=category, method=method, sample=pair.sample, right=pair.correct)
            found += [row] if category else []
    return found


def attribute(
    results: Iterable[Result], setting: Setting = DEFAULT, *, key: Callable[[Result], str] = of_category
) -> Attribution:
    """How far category and method explain which pairs are right. Arguments and errors as in :func:`rows`."""
    cells = list(results)
    data = rows(cells, setting, key=key)
    everything = rows(cells, setting, key=lambda _: "any")
    category, method = ([getattr(row, name) for row in data] for name in ("category", "method"))
    right = [row.right for row in data]
    one = logistic({"category": category}, right, permuted=_permuted(data, "category", ("task",), ()))
    other = logistic(
        {"method": method}, right, permuted=_permuted(data, "method", ("task", "method", "sample"), ("task",))
    )
    both = logistic({"category": category, "method": method}, right)
    tasks = len({row.task for row in data})
    left_out = len(everything) - len(data)
    taxonomy = str(getattr(key, "__name__", "category of one's own")).removeprefix("of_")
    a, b = one.pseudo_r2, other.pseudo_r2
    ratio = a / b if b and (a > 0 or b > 0) else math.inf if a > 0 else math.nan
    return Attribution(
        taxonomy=taxonomy,
        right=share(sum(right) / len(right), len(right), independent=tasks) if right else NOTHING("no pair"),
        null_log_likelihood=null(right),
        category=one,
        method=other,
        both=both,
        category_beyond_method=ratio_test(both, other),
        method_beyond_category=ratio_test(both, one),
        ratio=ratio,
        note=f"{left_out} pairs of tasks without a {taxonomy} left out" if left_out else "",
    )


def _permuted(data: Sequence[Row], level: str, unit: tuple[str, ...], block: tuple[str, ...]) -> Callable[[], float]:
    """Gives the p-value of rearranging the levels among the units of each block: rows of a unit are alike, which the
    chi-squared test does not know. All are names of fields.
    """

    def p() -> float:
        units = list(by_key((tuple(getattr(row, name) for name in unit), row) for row in data).values())
        blocks = [tuple(getattr(of[0], name) for name in block) for of in units]
        place = {one: i for i, one in enumerate(dict.fromkeys(blocks))}
        sums = np.array([(sum(row.right for row in of), len(of)) for of in units])
        levels = [getattr(of[0], level) for of in units]
        return _permutation_p(sums, levels, np.array([place[one] for one in blocks]))

    return p


def _permutation_p(sums: NDArray[np.int_], levels: Sequence[str], within: NDArray[np.int_]) -> float:
    """Share of rearrangements of the levels among units of the same block (``within``) that fit at least as well as the
    data; ``sums`` is (units, 2): rows that are right, and rows.
    """
    names = {level: i for i, level in enumerate(dict.fromkeys(levels))}
    ids = np.array([names[level] for level in levels])
    order = np.argsort(within, kind="stable")
    ids, sums, within = ids[order], sums[order], within[order]
    generator = np.random.default_rng(SEED)

    def fit(of: NDArray[np.int_]) -> float:
        k, n = (np.bincount(of, weights=sums[:, i], minlength=len(names)) for i in (0, 1))
        return float(saturated(k, n))

    least = fit(ids) - 1e-9
    as_good = 0
    for _ in range(PERMUTATIONS):
        shuffled = np.lexsort((generator.random(len(ids)), within))
        as_good += fit(ids[shuffled]) >= least
    return (1 + as_good) / (1 + PERMUTATIONS)


Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LikelihoodRatio:
    """Whether a model explains more than one inside it: 2 (log L - log L0), chi-squared if not (Wilks 1938)."""

    statistic: float
    """Twice the difference of the log-likelihoods; NaN: not available."""
    df: int
    """Parameters that the larger model has more."""
    p: float
    """Chance of such a statistic if the smaller model were true and rows were independent."""
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Level:
    """One category, or one method, in a model."""

    factor: str
    level: str
    """Its name; of the intercept the levels that it represents."""
    n: int
    right: int
    coefficient: float
    """Log odds ratio to the reference level, whose own is 0; NaN: unbounded, or not separable (see ``note``)."""
    error: float
    """Its standard error from the inverse Hessian; NaN where the coefficient is, and of the reference."""
    note: str = ""
    """``reference``; or why there is no coefficient."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """A logistic model of correctness on one or two factors."""

    factors: tuple[str, ...]
    log_likelihood: float
    """Its greatest log-likelihood; under separation the limit that it tends to."""
    pseudo_r2: float
    adjusted_r2: float
    """1 - (log L - parameters) / log L0: below 0 where the parameters are not worth their number (Ben-Akiva and Lerman
    1985, Discrete Choice Analysis, section 7.3)."""
    parameters: int
    """Free parameters beyond the intercept."""
    against_null: LikelihoodRatio
    p_permuted: float
    """The same question with dependent rows allowed for, of single factors: share of random rearrangements (of
    categories among whole tasks; of methods among the attempts at each task) that fit as well. NaN: of both factors."""
    levels: tuple[Level, ...]
    n: int
    note: str = ""
    """Why it is NaN; which levels separate the data."""


def logistic(
    factors: Mapping[str, Sequence[str]], right: Sequence[bool], *, permuted: Callable[[], float] | None = None
) -> Model:
    """A logistic model on categorical factors (their level in each row), their effects added in log odds.

    Greatest likelihood by a trust region with analytic gradient and Hessian. Where levels are all right or all wrong
    the likelihood has no greatest value but a limit: rows that a linear programme shows to be separated (Konis 2007,
    Linear programming algorithms for detecting separated binary data) count with their limit, a log-likelihood of 0,
    and the rest is fitted alone (Geyer 2009, Electronic Journal of Statistics 3:259). ``permuted`` gives the
    permutation p-value, if the model is one that has it. Raises UsageError where a factor has not as many levels as
    there are rows.
    """
    for name, levels in factors.items():
        if len(levels) != len(right):
            raise UsageError(f"factor {name!r} has {len(levels)} levels for {len(right)} rows; give one for each row")
    why = _too_little(factors, right)
    if why:
        none = LikelihoodRatio(statistic=math.nan, df=0, p=math.nan, note=why)
        bad = dict.fromkeys(("log_likelihood", "pseudo_r2", "adjusted_r2", "p_permuted"), math.nan)
        return Model(factors=tuple(factors), parameters=0, against_null=none, levels=(), n=len(right), note=why, **bad)
    table = _tabulate(factors, right)
    fit = _fit(table.design, table.right, table.total)
    base = null(right)
    free = fit.rank - 1
    return Model(
        factors=tuple(factors),
        log_likelihood=fit.log_likelihood,
        pseudo_r2=max(0.0, 1 - fit.log_likelihood / base),
        adjusted_r2=1 - (fit.log_likelihood - free) / base,
        parameters=free,
        against_null=_test(fit.log_likelihood, base, free),
        p_permuted=permuted() if permuted else math.nan,
        levels=_levels(table, fit, factors, right),
        n=len(right),
        note=_separated(table, fit),
    )


def _too_little(factors: Mapping[str, Sequence[str]], right: Sequence[bool]) -> str:
    if not right:
        return "no pair"
    if len(set(right)) < 2:
        return f"every pair is {'right' if right[0] else 'wrong'}"
    return "; ".join(f"only one {name}: {of[0]}" for name, of in factors.items() if len(set(of)) < 2)


def null(right: Sequence[bool]) -> float:
    """Log-likelihood of the model that knows the share alone; NaN where every outcome is the same, or there is none."""
    n, k = len(right), sum(right)
    return float(saturated(np.array([k]), np.array([n]))) if 0 < k < n else math.nan


def saturated(right: NDArray[Any], total: NDArray[Any]) -> Floats:
    """Log-likelihood of the model that knows each group's share: (..., groups) right ones and all of them -> (...).

    That of a model on one factor has this closed form.
    """
    wrong = total - right
    of = np.maximum(total, 1)
    out: Floats = (special.xlogy(right, right / of) + special.xlogy(wrong, wrong / of)).sum(axis=-1)
    return out


@dataclass(frozen=True)
class _Table:
    """Rows of equal levels counted together, and the model's columns."""

    cells: list[tuple[str, ...]]
    design: Floats
    right: Floats
    total: Floats
    columns: list[tuple[str, str]]
    reference: dict[str, str]


def _tabulate(factors: Mapping[str, Sequence[str]], right: Sequence[bool]) -> _Table:
    cells = by_key(zip(zip(*factors.values(), strict=True), right, strict=True))
    reference, columns = {}, [("intercept", "")]
    for name, of in factors.items():
        reference[name] = _reference(of, right)
        columns += [(name, level) for level in dict.fromkeys(of) if level != reference[name]]
    place = {name: i for i, name in enumerate(factors)}
    design = np.array([[not lv or c[place[name]] == lv for name, lv in columns] for c in cells])
    k, n = np.array([(sum(of), len(of)) for of in cells.values()], dtype=np.float64).T
    return _Table(list(cells), design.astype(np.float64), k, n, columns, reference)


def _reference(levels: Sequence[str], right: Sequence[bool]) -> str:
    """The most frequent level that has both outcomes, so that as few coefficients as can be are unbounded."""
    n, k = Counter(levels), Counter(level for level, is_right in zip(levels, right, strict=True) if is_right)
    return max(n, key=lambda level: (0 < k[level] < n[level], n[level]))


@dataclass(frozen=True)
class _Fit:
    log_likelihood: float
    coefficients: Floats
    """NaN where unbounded, or not separable from others."""
    errors: Floats
    rank: int
    separated: NDArray[np.bool_]
    """(cells,): whose probability is 0 or 1 in the limit."""
    aliased: NDArray[np.bool_]
    """(coefficients,): those that the design itself cannot separate from others."""


def _fit(design: Floats, right: Floats, total: Floats) -> _Fit:
    basis, nowhere = _row_space(design)
    rank, aliased = basis.shape[1], np.abs(nowhere).max(axis=0, initial=0.0) > _ZERO
    separated = _recession(design, right, total)
    kept, k, n = design[~separated], right[~separated], total[~separated]
    coefficients, errors = np.full((2, design.shape[1]), math.nan)
    if not len(kept):
        return _Fit(0.0, coefficients, errors, rank, separated, aliased)
    basis, nowhere = _row_space(kept)
    x = kept @ basis
    size = n.sum()

    def loss(b: Floats) -> float:
        eta = x @ b
        return float((n * np.logaddexp(0, eta) - k * eta).sum() / size)

    def gradient(b: Floats) -> Floats:
        out: Floats = x.T @ (n * special.expit(x @ b) - k) / size
        return out

    def hessian(b: Floats) -> Floats:
        p = special.expit(x @ b)
        out: Floats = (x.T * (n * p * (1 - p))) @ x / size
        return out

    found = optimize.minimize(
        loss, np.zeros(basis.shape[1]), jac=gradient, hess=hessian, method="trust-exact", tol=1e-9
    )
    best = found.x
    for _ in range(3):  # the trust region ends at the rounding of the loss, the gradient can be made smaller still
        best = best - np.linalg.solve(hessian(best), gradient(best))
    if not np.abs(gradient(best)).max() < 1e-7:
        raise ArithmeticError(f"a logistic model of {len(design)} groups did not converge: {found.message}")
    fixed = np.abs(nowhere).max(axis=0, initial=0.0) <= _ZERO
    spread = np.sqrt(np.einsum("ij,jk,ik->i", basis, np.linalg.inv(hessian(best) * size), basis))
    coefficients[fixed], errors[fixed] = (basis @ best)[fixed], spread[fixed]
    return _Fit(float(-loss(best) * size), coefficients, errors, rank, separated, aliased)


_ZERO = 1e-9


def _row_space(design: Floats) -> tuple[Floats, Floats]:
    """Orthonormal directions of the coefficients that change a linear predictor: (coefficients, rank); and those that
    change none: (coefficients - rank, coefficients).
    """
    _, singular, directions = np.linalg.svd(design, full_matrices=True)
    rank = int((singular > _ZERO * singular[0]).sum())
    return directions[:rank].T, directions[rank:]


def _recession(design: Floats, right: Floats, total: Floats) -> NDArray[np.bool_]:
    """(cells,): those that some direction of the coefficients pushes towards certainty at no other cell's cost.

    Linear programme: greatest sum of z in [0, 1] with z <= sign * x b in cells of one outcome, x b = 0 in the others.
    """
    pure = (right == 0) | (right == total)
    out = np.zeros(len(design), dtype=bool)
    if not pure.any():
        return out
    m, p = int(pure.sum()), design.shape[1]
    signed = np.where(right[pure] == 0, -1.0, 1.0)[:, None] * design[pure]
    mixed = design[~pure]
    found = optimize.linprog(
        np.r_[np.zeros(p), -np.ones(m)],
        A_ub=np.hstack([-signed, np.eye(m)]),
        b_ub=np.zeros(m),
        A_eq=np.hstack([mixed, np.zeros((len(mixed), m))]) if len(mixed) else None,
        b_eq=np.zeros(len(mixed)) if len(mixed) else None,
        bounds=[(None, None)] * p + [(0, 1)] * m,
        method="highs",
    )
    if found.x is None:
        raise ArithmeticError(f"looking for separation in {len(design)} groups failed: {found.message}")
    out[pure] = found.x[p:] > 0.5
    return out


def _levels(table: _Table, fit: _Fit, factors: Mapping[str, Sequence[str]], right: Sequence[bool]) -> tuple[Level, ...]:
    place = {column: i for i, column in enumerate(table.columns)}

    def made(name: str, level: str, n: int, k: int, column: int) -> Level:
        value, error = float(fit.coefficients[column]), float(fit.errors[column])
        why = "all right" if k == n else "all wrong" if k == 0 else "not bounded"
        why = "not separable from the other factor" if fit.aliased[column] else why
        note = why if math.isnan(value) else ""
        return Level(factor=name, level=level, n=n, right=k, coefficient=value, error=error, note=note)

    found = [made("intercept", ", ".join(table.reference.values()), len(right), sum(right), 0)]
    for name, of in factors.items():
        for level, here in by_key(zip(of, right, strict=True)).items():
            n, k = len(here), sum(here)
            if level == table.reference[name]:
                own = Level(factor=name, level=level, n=n, right=k, coefficient=0.0, error=math.nan, note="reference")
                found.append(own)
            else:
                found.append(made(name, level, n, k, place[name, level]))
    return tuple(found)


_SHOWN = 6


def _separated(table: _Table, fit: _Fit) -> str:
    names = [
        f"{' x '.join(cell)} {'all right' if k else 'all wrong'}"
        for cell, k, apart in zip(table.cells, table.right, fit.separated, strict=True)
        if apart
    ]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"separated: {', '.join(names[:_SHOWN])}{more}" if names else ""


def ratio_test(larger: Model, smaller: Model) -> LikelihoodRatio:
    """What a model on more factors adds to one on some of them; NaN with the reason where one of them is NaN."""
    why = larger.note if math.isnan(larger.pseudo_r2) else smaller.note if math.isnan(smaller.pseudo_r2) else ""
    df = larger.parameters - smaller.parameters
    if not why and df <= 0:
        why = "the other factor determines this one"
    if why:
        return LikelihoodRatio(statistic=math.nan, df=max(df, 0), p=math.nan, note=why)
    return _test(larger.log_likelihood, smaller.log_likelihood, df)


def _test(larger: float, smaller: float, df: int) -> LikelihoodRatio:
    statistic = float(max(0.0, 2 * (larger - smaller)))
    return LikelihoodRatio(statistic=statistic, df=df, p=float(stats.chi2.sf(statistic, df)))
