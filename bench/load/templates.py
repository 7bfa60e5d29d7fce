"""The sentences and tasks of generated prompts, whose `{slots}` `bench.load.writing` fills."""

from __future__ import annotations

from typing import Final


def _paragraphs(text: str) -> tuple[str, ...]:
    """Templates are paragraphs of a text: a blank line ends one, its own lines are joined."""
    return tuple(" ".join(part.split()) for part in text.strip().split("\n\n"))


SENTENCES: Final = _paragraphs("""
Before {house} came to {place}, the {thing} was {action} {manner} by whoever had the time.

Ask {person} about {trouble} and the answer is always the same: look at the {other} first.

Of {measure} that {place} reported for {month}, less than half could be {action} {manner}.

{name} kept the {quality} {other} in a shed at {place}, and sold it to {house} on {date}.

Had the {thing} been {action} in {month}, {trouble} would have cost {measure}, not {measure2}.

{house2} sent {name} and {name2} to {place}; only {name2} came back with the {quality} {other}.

On {date}, {person} {action} the {quality} {thing} {manner}.

{house} had ordered {small} of them for {place}, but {trouble} kept the {thing} from being
{action}.

The {thing} was rated at {measure}, which {person} called {quality}.

Nobody in {place} could say why the {thing} had been {action} before the {other}.

“If the {thing} is {quality}, then {action} is what it should be,” said {person}.

{small} years later the figure stood at {measure}, against {measure2} in {place}.

A letter from {person} to {house} names {trouble}, and asks for another {other}.

In {place} the {quality} {thing} is {action} {manner}, while the {other} waits.

It took {small} days, {person} and a {quality} {other} to put the {thing} right.

The report of {date} blames {trouble}; {house} blames the {other}.

What {person} noticed first was {trouble}, then how {quality} the {thing} looked.

A {quality} {thing} costs less than a {quality2} {other}, yet {house} {action} both.

By {month} the {thing} of {place} carried {measure}, and it was {action} {manner}.

{house} and {house2} never agreed on whether the {thing} should be {action}.

After {trouble}, {person} kept a list of every {other} that had been {action}.

The {quality} part, {person} used to say, is not the {thing} but the {other} beside it.
""")

HEADING: Final = "{section}. The {quality} {thing} of {place}"

RECORD: Final = " | ".join(
    (
        "{number:04d}",
        "{date}",
        "{place}",
        "{thing} {action} by {name}",
        "{measure}",
        "ref {reference:08x}",
    )
)

NEEDLE: Final = "note | {name} left the {thing} in {place} under code {code}"

FUNCTIONS: Final = (
    """    total = 0
    for item in {noun}s:
        if item.{key} > {mid}:
            total += item.{key} // {small}
    return total""",
    """    kept = [item for item in {noun}s if item.{key} % {small}]
    kept.sort(key=lambda item: (item.{key}, item.name))
    return kept[:{mid}]""",
    """    by_{key} = {{}}
    for item in {noun}s:
        by_{key}.setdefault(item.{key} // {small}, []).append(item)
    return by_{key}""",
    """    low, high = 0, len({noun}s)
    while low < high:
        middle = (low + high) // 2
        if {noun}s[middle].{key} < {mid}:
            low = middle + 1
        else:
            high = middle
    return low""",
    """    if not {noun}s:
        raise ValueError("no {thing} to look at")
    return sum(item.{key} for item in {noun}s) * {small} / 100""",
)

PURPOSES: Final = _paragraphs("""
Look through each {thing} whose {key} matters, up to {mid}.

The {key} of every {thing}, as the yearly audit wants it.

Used when a {thing} comes back with its {key} above {mid}.

Called once for each new {thing}; an unknown {key} counts as {mid}.

Keeps the order of the {thing} list unless its {key} says otherwise.
""")

CHAT: Final = _paragraphs("""
I work in {field} near {place} and have to deal with {trouble} this week. What would you do about
the {thing} first, and why?

My neighbour is a {role} in {place} and keeps talking about the {thing}. Explain to me, without
jargon, what it is for and what can go wrong with it. She has had it for {small} years.

I have {small} days and {big} euros to replace a {quality} {thing} in {place}. Help me to plan
it.

According to {person}, the {thing} matters more than the {other}. Give the best case for and
against, then your own view, in at most {mid} words.

Write a friendly letter to {house} that asks for a new {thing}, mentions {trouble} and stays
under {mid} words. It is signed by {person}.

What should a beginner in {field} know about {trouble}? Give me {few} short points and one story
about {name} from {place}.
""")

CODE: Final = _paragraphs("""
Write a {code_language} function that takes a list of {thing} records and returns the {small}
with the largest {key}, ties broken by name. Add tests.

Write a {code_language} program that reads {thing} records from standard input, one JSON object a
line, and prints the running mean of {key} over the last {big} of them.

Implement in {code_language} a cache for {thing} look-ups that holds at most {big} entries, drops
the least recently used one and counts its hits. Explain its cost.

In {code_language}, parse lines such as `{thing}; {key}={big}; ok` into a typed record, with
clear errors for bad lines. Show how it is used.

Design a {code_language} module that schedules the {thing} jobs of a depot so that none waits
longer than {big} seconds. Write the code, then say what it cannot do.

Rewrite this in {code_language} and say how much faster it gets with {big} entries: a loop that
walks over all {thing} entries, and for each one searches the whole list for the same {key}.
""")

MATHS: Final = _paragraphs("""
{name} can finish a {thing} in {small} hours, {name2} in {mid} hours. They begin together, but
{name} leaves after {few} hours. How long does {name2} still need? Show every step.

A {thing} loses {small} percent of its value each year. After how many years is it worth less
than {mid} euros, if it cost {big}? Show your work.

Of {big} {thing} orders, {mid} were late and {small} were both late and wrong; twice as many were
wrong as were both. What share was neither late nor wrong?

Find all whole numbers n for which n^2 + {small}n + {mid} is a perfect square, and prove that
there are no others.

A box holds {small} red and {mid} blue tokens. {few} are drawn without putting any back. What is
the probability that exactly two of them are red? Give it as a fraction.

A road climbs from {place} to {place2}: {big} metres at {few} percent, then {mid} metres at
{small} percent. How high is the climb, and what is the average gradient?
""")

SUMMARISING: Final = _paragraphs("""
Summarise the following text in {few} sentences for a busy {role}.

Give the {few} main points of the text below, each with the figure that supports it.

Write an abstract of at most {mid} words of this text, for the {role} of {house}.

What happened, in order? Retell the text below in {few} short steps for a {role}.
""")

TRANSLATION: Final = _paragraphs("""
Translate the text below into {language}, in a {style} style.

Put this into {language} as a {style} text, and keep all names and numbers.

Give a {style} {language} version of the following, paragraph by paragraph, for {name}.
""")

RETRIEVAL: Final = "Read these records carefully; a question about them follows."

QUESTIONS: Final = _paragraphs("""
Under which code did {name} leave the {thing}? Answer with the code and quote its line.

Where is the {thing} with code {code}, and who left it there?

Which records name {place}? List their numbers, then say what {name} did there.
""")

STRUCTURED: Final = _paragraphs("""
Extract every event of the text below as a JSON array of objects with the keys {keys}. Use null
for what is not said. Answer with JSON only.

Turn the text below into a Markdown table with the columns {keys}, a row a fact.

Give the facts of this text as YAML: a list of mappings with the keys {keys}.

From the text below write CSV with the columns {keys}, quoting where needed.
""")

CLUES: Final = _paragraphs("""
{p0} comes before {p1}.

Whoever has the {t2} is next to {p2}.

{p3} has neither the {t0} nor the {t1}.

The {t1} is at one end.

Between {p1} and the {t0} there is exactly one place.

{p2} does not have the {t3}.

The {t3} is somewhere behind {p0}.
""")

REASONING: Final = (
    "{people} stand in a row, and each has one of these: {things}. {clues} Who stands where, with "
    "what? Reason step by step; if several answers fit, say which."
)
