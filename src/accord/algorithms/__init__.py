"""The methods by name: the only registry. A new method is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from accord.algorithms.apple import apple
from accord.algorithms.centralized import centralized
from accord.algorithms.compose import compose
from accord.algorithms.dann import dann
from accord.algorithms.ditto import ditto
from accord.algorithms.fedavg import fedavg
from accord.algorithms.fedbabu import fedbabu
from accord.algorithms.fedbn import fedbn
from accord.algorithms.fedbr import fedbr
from accord.algorithms.fedcm import fedcm
from accord.algorithms.feddecorr import feddecorr
from accord.algorithms.feddyn import feddyn
from accord.algorithms.fedfusion import fedfusion
from accord.algorithms.fedmeta import fedmeta
from accord.algorithms.fedmix import fedmix, naivemix
from accord.algorithms.fedmmd import fedl2, fedmmd
from accord.algorithms.fedmtl import fedmtl
from accord.algorithms.fednova import fednova
from accord.algorithms.fedntd import fedntd
from accord.algorithms.fedper import fedper
from accord.algorithms.fedprox import fedprox
from accord.algorithms.fedrane import fedrane
from accord.algorithms.fedrep import fedrep
from accord.algorithms.fedreptile import fedreptile
from accord.algorithms.fedrod import fedrod
from accord.algorithms.fedufo import feduad, fedufo
from accord.algorithms.fml import fml
from accord.algorithms.groupdro import groupdro
from accord.algorithms.local import local
from accord.algorithms.mixup import mixup
from accord.algorithms.moon import moon
from accord.algorithms.pfedme import pfedme
from accord.algorithms.qffl import qffl
from accord.algorithms.robust import krum, median, norm_clip, trimmed_mean
from accord.algorithms.scaffold import scaffold
from accord.algorithms.server_optimizers import fedadam, fedavgm, fedyogi
from accord.algorithms.server_rprop import server_rprop
from accord.algorithms.spherefed import spherefed
from accord.algorithms.vhl import vhl
from accord.core.algorithm import Algorithm
from accord.settings import Registry

ALGORITHMS: Registry[Callable[..., Algorithm]] = Registry("algorithm")

PAPERS = (fedufo, feduad, fedbr, fedmmd, fedl2, fedfusion, fedrane)
CLIENT_SIDE = (
    fedavg,
    fedprox,
    scaffold,
    feddyn,
    fednova,
    moon,
    fedcm,
    feddecorr,
    fedntd,
    spherefed,
    dann,
    groupdro,
    qffl,
)
DATA_SIDE = (mixup, fedmix, naivemix, vhl, fedmeta)
SERVER_SIDE = (fedavgm, fedadam, fedyogi, fedreptile, server_rprop, median, trimmed_mean, krum, norm_clip)
PERSONAL = (fedper, fedrep, fedbn, fedbabu, fedrod, fml, ditto, pfedme, apple, fedmtl)
ENDS = (compose, local, centralized)

for factory in (*PAPERS, *CLIENT_SIDE, *DATA_SIDE, *SERVER_SIDE, *PERSONAL, *ENDS):
    ALGORITHMS.add(factory.__name__)(factory)
