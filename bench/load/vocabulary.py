"""The words that generated prompts are made of."""

from __future__ import annotations

from typing import Final, NamedTuple


class Field(NamedTuple):
    """A field of work: who acts in it, on what, in which ways, measured how."""

    name: str
    people: tuple[str, ...]
    things: tuple[str, ...]
    actions: tuple[str, ...]
    troubles: tuple[str, ...]
    measures: tuple[str, ...]


def _words(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.replace("\n", " ").split(","))


def _field(name: str, rows: str) -> Field:
    """Read a field's rows: people, things, actions, troubles, measures, one after another."""
    people, things, actions, troubles, measures = rows.strip().split(";")
    return Field(
        name, _words(people), _words(things), _words(actions), _words(troubles), _words(measures)
    )


FIELDS: Final = (
    _field(
        "shipping",
        """
harbour master, dock foreman, pilot, customs broker, ship's engineer, crane driver;
container, gantry, tugboat, manifest, mooring line, ballast tank, berth, reefer unit, quay
wall, lashing rod;
unloaded, inspected, rerouted, weighed, moored, repainted, insured, sealed;
a late tide table, a torn seal, salt in the gearbox, a missing customs stamp, a misread
draught mark;
tonnes of cargo, hours at berth, metres of draught, containers an hour
""",
    ),
    _field(
        "baking",
        """
head baker, miller, pastry cook, delivery rider, oven fitter, shop keeper;
sourdough, oven deck, proofing basket, rye flour, dough hook, cooling rack, starter, icing
nozzle, scale, steam valve;
kneaded, proofed, glazed, weighed, scored, chilled, sifted, boxed;
a starter gone flat, uneven heat at the back, flour with too little gluten, a jammed mixer;
grams of salt, loaves a shift, degrees in the oven, minutes of proofing
""",
    ),
    _field(
        "astronomy",
        """
observer, instrument maker, graduate student, telescope operator, archivist, optician;
spectrograph, mirror cell, guide star, dome shutter, photometer, light curve, calibration
lamp, star catalogue, comet, filter wheel;
calibrated, aligned, observed, catalogued, reduced, cooled, polished, plotted;
thin cloud after midnight, a drifting guide star, dew on the corrector, a saturated frame;
seconds of exposure, arcseconds of seeing, frames a night, magnitudes of error
""",
    ),
    _field(
        "farming",
        """
grower, agronomist, tractor driver, beekeeper, seed merchant, water bailiff;
orchard, drip line, seed drill, compost heap, barley field, greenhouse, hedgerow, silo, rain
gauge, soil probe;
sown, pruned, irrigated, harvested, grafted, mulched, fenced, sampled;
a late frost, leaf rust, a blocked nozzle, heavy clay after rain, a broken belt;
tonnes a hectare, millimetres of rain, litres a minute, days to ripeness
""",
    ),
    _field(
        "railways",
        """
signaller, track inspector, driver, timetable planner, conductor, depot manager;
points motor, ballast, pantograph, signal box, bogie, level crossing, overhead wire,
timetable, sleeper, axle counter;
inspected, greased, resignalled, rescheduled, welded, tested, realigned, replaced;
a hot axle box, leaves on the line, a failed track circuit, a buckled rail;
minutes late, trains a day, kilometres of track, volts at the wire
""",
    ),
    _field(
        "medicine",
        """
ward nurse, pharmacist, surgeon, physiotherapist, records clerk, radiographer;
infusion pump, dosage chart, X-ray plate, ward round, vaccine fridge, splint, blood sample,
waiting list, stretcher, referral;
sterilised, prescribed, recorded, measured, dispensed, bandaged, postponed, reviewed;
an illegible chart, a fridge alarm at night, a swapped label, an allergy nobody noted;
millilitres an hour, beats a minute, patients a ward, days until discharge
""",
    ),
    _field(
        "printing",
        """
typesetter, press operator, bookbinder, proof reader, paper merchant, engraver;
offset plate, ink roller, galley proof, folding machine, title page, paper reel, type case,
guillotine, spine label, colour bar;
set, proofed, bound, trimmed, inked, folded, stitched, reprinted;
ink that set off on the next sheet, a broken letter, paper too damp to fold, a page out of
order;
sheets an hour, grams a square metre, copies bound, microns of ink
""",
    ),
    _field(
        "software",
        """
developer, reviewer, release manager, on-call engineer, tester, database administrator;
message queue, index, migration, cache layer, build script, feature flag, log parser, retry
policy, container image, scheduler;
deployed, profiled, reverted, refactored, documented, benchmarked, patched, sharded;
a lock held too long, a clock that ran backwards, an unbounded queue, a silent overflow;
requests a second, megabytes resident, milliseconds at the tail, rows scanned
""",
    ),
    _field(
        "architecture",
        """
architect, site manager, mason, surveyor, carpenter, structural engineer;
load-bearing wall, stairwell, roof truss, drainage plan, facade panel, lintel, foundation,
skylight, balcony, fire door;
surveyed, braced, plastered, insulated, demolished, glazed, levelled, signed off;
a crack above the lintel, damp in the north wall, a beam cut too short, an unmarked pipe;
square metres, kilonewtons of load, weeks behind plan, degrees of slope
""",
    ),
    _field(
        "music",
        """
conductor, luthier, oboist, stage manager, composer, recording engineer;
string section, reed, rehearsal room, microphone stand, score, tuning fork, bow, mixing
desk, timpani, overture;
rehearsed, tuned, transposed, recorded, annotated, conducted, mixed, restrung;
a cracked reed, a hum on the left channel, a page turn that nobody can make, a late trumpet;
beats a minute, bars of rest, takes kept, cents of detuning
""",
    ),
    _field(
        "hydrology",
        """
lock keeper, hydrologist, dredger captain, dam operator, mapmaker, ferry owner;
weir, gauge station, spillway, flood plain, culvert, sluice gate, sediment trap, levee,
turbine, fish ladder;
dredged, gauged, drained, flooded, reinforced, mapped, opened, sampled;
silt behind the gate, a gauge that froze, a beaver dam upstream, a leak in the culvert;
cubic metres a second, centimetres of level, megawatts delivered, years between floods
""",
    ),
    _field(
        "teaching",
        """
headteacher, chemistry teacher, caretaker, librarian, exchange student, exam officer;
reading list, laboratory bench, timetable, field trip, blackboard, exam paper, library card,
debate club, report, fume cupboard;
marked, explained, postponed, catalogued, rehearsed, graded, translated, summarised;
two classes in one room, a lost answer sheet, chalk that would not write, a bus that never
came;
pages a week, pupils a class, marks out of sixty, minutes a lesson
""",
    ),
)
GIVEN_NAMES: Final = _words("""
Adaeze, Agnes, Akira, Amina, Anders, Anouk, Arjun, Beatriz, Bela, Carmen, Chidi, Clara,
Dalia, Davit, Dmitri, Elif, Emil, Esther, Farah, Fergus, Freya, Gita, Goran, Hana, Henrik,
Ines, Ioana, Isak, Jamal, Jana, Joaquin, Kaito, Karin, Kofi, Lalitha, Leif, Lena, Luca,
Magnus, Mariam, Mateo, Mei, Milan, Nadia, Niall, Noor, Olga, Oskar, Paloma, Pavel, Petra,
Priya, Rafael, Renske, Rosa, Ruben, Sadia, Selma, Sigrid, Silvio, Sofia, Tariq, Tomas, Uma,
Valentin, Vera, Wanda, Wei, Xenia, Yara, Yusuf, Zofia
""")
PLACES: Final = _words("""
Aalsund, Belmora, Brackwater, Calder, Corvane, Dunmere, Eastwick, Elmhaven, Farrow, Glenby,
Grauhof, Halvik, Harrowgate, Ilmstadt, Inverlee, Kallio, Kestrelby, Lindholm, Lorne, Marrow,
Montsel, Northquay, Oakford, Ostrava-Nord, Pellworm, Port Quillan, Ravenna-Est, Rosk,
Saltburn, Selkirk-upon-Tarn, Tarnow, Tavira, Ulmdale, Vardo, Vellora, Westerly, Wyndham,
Yarrow, Zellmark
""")
HOUSE_FIRST: Final = _words("""
Amber, Anchor, Blue, Bridge, Cobalt, Copper, Crown, Delta, Eagle, Ember, Falcon, Granite,
Harbour, Iron, Juniper, Lantern, Maple, Meridian, North, Oak, Orchard, Pioneer, Quarry,
River, Silver, Summit, Thistle, Union, Vesper, Willow
""")
HOUSE_SECOND: Final = _words("""
Brothers, Collective, Company, Consortium, Cooperative, Foundation, Group, Guild, Institute,
Laboratories, Logistics, Partners, Society, Trust, Works, Workshop
""")
QUALITIES: Final = _words("""
abrupt, ample, awkward, brittle, careful, cautious, cheap, clumsy, costly, crowded, dense,
dim, doubtful, durable, eager, early, exact, faint, familiar, frugal, generous, hasty,
heavy, hollow, idle, lively, loose, modest, narrow, noisy, orderly, patient, plain, prompt,
quiet, rough, rusty, shallow, sharp, simple, slow, sober, sparse, steady, stubborn, subtle,
sudden, tidy, tight, timid, uneven, unusual, vague, vivid
""")
MANNERS: Final = _words("""
at once, before dawn, in plain view, with some luck, against advice, by hand, in two stages,
without a word, for the third time, under protest, as a favour, in heavy rain, from memory,
behind schedule, to everyone's surprise, on a Sunday, with borrowed tools, over the
telephone, by candlelight, in good order
""")
MONTHS: Final = _words("""
January, February, March, April, May, June, July, August, September, October, November,
December
""")
LANGUAGES: Final = _words("""
French, German, Spanish, Italian, Portuguese, Dutch, Polish, Swedish, Turkish, Japanese,
Korean, Arabic, Hindi, Vietnamese, Indonesian, Ukrainian
""")
PROGRAMMING_LANGUAGES: Final = _words("""
Python, Rust, Go, TypeScript, Java, C++, Kotlin, Ruby, C#, Swift, SQL, Haskell
""")
