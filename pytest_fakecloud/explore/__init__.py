"""Exploration: running code under many schedules, to find a small one that breaks a promise.

A folder may import those before it in this list; only functions of ``explore``, ``world`` and
``Cloud`` import guests::

    values/         disturbances and their kinds, schedules, and the trial
    subject/        what the caller passes: programs, promises, options
    fakes/          the fakes, their connections in memory, and fingerprints of their data
    simulation/     runs the code once, one strand at a time: TrialLog, then Trial
    world/          what is replaced in the process and the fakes, and leads to the simulation
    judge/          calls the checks at the end, and looks for anomalies: Verdict
    search/         takes the next plan from its sources, plays and counts it, and shrinks what fails
    result/         repeats the failing trial, finds the cause, and tells the story
    undisturbed     checks that the undisturbed trial keeps the promise, and repeats
    without_guests  what guests replace: the only input, the only process, no examination of the promise
    find_failure    for each input: plays the undisturbed trial, searches, and shrinks what fails
    explore         checks the arguments, searches for a failure, and examines the promise
    guests/         parts that can be deleted, one by one
"""
