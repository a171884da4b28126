"""SMILES to graphs, with the vocabularies of the Open Graph Benchmark, or with those of ZINC.

Needs RDKit (``pip install 'gradformer[chem]'``), which is imported at the first call only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradformer.errors import InputError
from gradformer.graphs.arrays import Vocabulary

# Atoms: atomic number, chirality, degree, formal charge, hydrogens, radical electrons,
# hybridization, aromatic, in ring. Bonds: type, stereo, conjugated. The last index of a column that
# is not yes or no stands for any value not listed (for stereo: for "any").
ATOM_VOCABULARY = (119, 5, 12, 12, 10, 6, 6, 2, 2)
BOND_VOCABULARY = (5, 6, 2)

_CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER")
_HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
_BOND_TYPE = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")


# ZINC as Benchmarking GNNs has it: element, explicit hydrogens and charge of an atom in the Kekulé
# form; bonds are 1 single, 2 double, 3 triple.
ZINC_ATOMS = (
    *("C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +"),
    *("N -", "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +"),
    *("S H1 +", "C H1 -", "P H1 +"),
)
ZINC_VOCABULARY = ((len(ZINC_ATOMS),), (4,))

Molecule = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]


def from_smiles(smiles: str) -> Molecule:
    """The graph of a molecule: (x [atoms, 9], edge_index [2, 2·bonds], edge_attr [2·bonds, 3]).

    Atoms and bonds keep RDKit's order; bond b is edges 2b (begin → end) and 2b+1 (end → begin).
    Hydrogens are implicit unless the SMILES says otherwise.
    """
    tables = _tables()
    mol = _molecule(smiles)
    x = _listed([_atom_row(atom, tables) for atom in _atoms(mol)], ATOM_VOCABULARY)
    bonds = _bonds(mol)
    edge_attr = _listed([_bond_row(bond, tables) for bond in bonds], BOND_VOCABULARY)
    return x, _both_ways(bonds), edge_attr.repeat(2, axis=0)


def from_smiles_as_zinc(smiles: str) -> Molecule:
    """As :func:`from_smiles`, with the one column of atoms and of bonds that ZINC has.

    Which of the Kekulé forms of an aromatic ring is taken is RDKit's choice, other in each version.
    """
    mol = _molecule(smiles)
    _rdkit().Chem.Kekulize(mol, clearAromaticFlags=True)

    def number(atom: Any) -> int:
        hydrogens, charge = atom.GetNumExplicitHs(), atom.GetFormalCharge()
        word = atom.GetSymbol() + (f" H{hydrogens}" if hydrogens else "")
        word += " +" if charge > 0 else " -" if charge < 0 else ""
        if word not in ZINC_ATOMS:
            raise InputError(
                f"SMILES {_short(smiles)} holds {word!r}, none of the atoms of ZINC: "
                f"{', '.join(ZINC_ATOMS)}"
            )
        return ZINC_ATOMS.index(word)

    x = np.array([[number(atom)] for atom in _atoms(mol)])
    bonds = _bonds(mol)
    order = np.array([int(bond.GetBondTypeAsDouble()) for bond in bonds], dtype=np.int64)
    if len(order) and order.max() > 3:
        raise InputError(
            f"SMILES {_short(smiles)} holds a bond of order {order.max()}; those of ZINC are "
            "single, double and triple"
        )
    return x, _both_ways(bonds), order.repeat(2)[:, None]


def smiles_reader(node: Vocabulary, edge: Vocabulary) -> Callable[[str], Molecule] | None:
    """What makes graphs with these vocabularies from SMILES; None if they are of no molecules."""
    known: dict[Any, Callable[[str], Molecule]] = {
        (ATOM_VOCABULARY, BOND_VOCABULARY): from_smiles,
        ZINC_VOCABULARY: from_smiles_as_zinc,
    }
    return known.get((node, edge))


def _atoms(mol: Any) -> list[Any]:
    """As ``mol.GetAtoms()``, which is slow: it asks for the number of atoms at each of them."""
    return [mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms())]


def _bonds(mol: Any) -> list[Any]:
    return [mol.GetBondWithIdx(index) for index in range(mol.GetNumBonds())]


def _both_ways(bonds: list[Any]) -> NDArray[np.int32]:
    """The edges of bonds, [2, 2·bonds]."""
    ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
    forth = np.array(ends, dtype=np.int32).reshape(-1, 2)
    edge_index = np.stack([forth, forth[:, ::-1]], axis=1).reshape(-1, 2).T
    return np.ascontiguousarray(edge_index)


def canonical(smiles: str) -> str:
    """The same for all ways to write a molecule; mirror images are two molecules.

    >>> canonical("OCC") == canonical("C(C)O")
    True
    """
    return str(_rdkit().Chem.MolToSmiles(_molecule(smiles)))


def scaffold(smiles: str) -> str:
    """The Bemis–Murcko scaffold (rings and what links them) as SMILES; "" for acyclic molecules."""
    mol = _molecule(smiles)
    return str(_rdkit().scaffolds.MurckoScaffoldSmiles(mol=mol, includeChirality=False))


@cache
def _rdkit() -> SimpleNamespace:
    try:
        from rdkit import Chem, rdBase
        from rdkit.Chem.Scaffolds import MurckoScaffold
    except ImportError as error:
        raise InputError(
            "reading SMILES needs RDKit, which is not installed: pip install 'gradformer[chem]'"
        ) from error
    return SimpleNamespace(Chem=Chem, rdBase=rdBase, scaffolds=MurckoScaffold)


def _molecule(smiles: str) -> Any:
    """RDKit's molecule, or an :class:`InputError` that says what is wrong with it."""
    rdkit = _rdkit()
    with rdkit.rdBase.BlockLogs():  # RDKit would print its complaint; we put it in the message
        try:
            mol = rdkit.Chem.MolFromSmiles(smiles)
        except UnicodeEncodeError:
            raise InputError(f"SMILES {_short(smiles)} holds something that is no text") from None
        if mol is None:
            raise InputError(f"SMILES {_short(smiles)} {_what_is_wrong(smiles)}")
    if mol.GetNumAtoms() == 0:
        raise InputError(f"SMILES {_short(smiles)} has no atoms")
    return mol


def _what_is_wrong(smiles: str) -> str:
    Chem = _rdkit().Chem
    mol = Chem.MolFromSmiles(smiles, sanitize=False)
    if mol is None:
        return "cannot be parsed"
    problems = Chem.DetectChemistryProblems(mol)
    reason = problems[0].Message() if problems else "RDKit cannot sanitise it"
    return f"is not a valid molecule: {reason}"


def _short(smiles: str) -> str:
    return repr(smiles if len(smiles) <= 60 else smiles[:57] + "...")


@cache
def _tables() -> SimpleNamespace:
    """RDKit's enumerated values → index, built once."""
    Chem = _rdkit().Chem

    def index(enum: Any, names: tuple[str, ...]) -> dict[Any, int]:
        return {enum.names[name]: position for position, name in enumerate(names)}

    return SimpleNamespace(
        chirality=index(Chem.ChiralType, _CHIRALITY),
        hybridization=index(Chem.HybridizationType, _HYBRIDIZATION),
        bond_type=index(Chem.BondType, _BOND_TYPE),
        stereo=index(Chem.BondStereo, _STEREO),
    )


def _atom_row(atom: Any, tables: SimpleNamespace) -> tuple[int, ...]:
    return (
        atom.GetAtomicNum() - 1,
        tables.chirality.get(atom.GetChiralTag(), -1),
        atom.GetTotalDegree(),
        atom.GetFormalCharge() + 5,
        atom.GetTotalNumHs(),
        atom.GetNumRadicalElectrons(),
        tables.hybridization.get(atom.GetHybridization(), -1),
        atom.GetIsAromatic(),
        atom.IsInRing(),
    )


def _bond_row(bond: Any, tables: SimpleNamespace) -> tuple[int, ...]:
    return (
        tables.bond_type.get(bond.GetBondType(), -1),
        tables.stereo.get(bond.GetStereo(), -1),
        bond.GetIsConjugated(),
    )


def _listed(rows: list[tuple[int, ...]], vocabulary: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows as [rows, columns], with the last index of a column for what is beyond it."""
    found = np.array(rows, dtype=np.int64).reshape(-1, len(vocabulary))
    size = np.array(vocabulary)
    return np.where((found < 0) | (found >= size), size - 1, found)
