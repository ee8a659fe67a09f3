"""Exploration: running code under many schedules, to find the smallest one that breaks a promise.

The way from ``explore.explore()`` to the story of a failure::

    options, programs           the arguments
    disturbances, schedule      what differs from the default: a schedule is a tuple of disturbances
    search.search               the undisturbed trial, the search, and then
    search.explorer             takes the next plan from its sources, until a trial breaks the promise
    search.player               plays a plan, and counts the trial:
        world, simulation/          runs the code, one strand at a time: TrialLog, then Trial
        judge                       calls the checks, and looks for anomalies: Verdict
    search.shrinking            leaves disturbances out, and replaces them by simpler ones
    result.reproduce            repeats the failing trial; others in result/ find the cause, and tell
                                the story

``trial`` has the values that these share. Each part of ``guests/`` can be deleted.
"""
