// Rank the results of the site's search: guides first, then other pages, then the reference.
var Scorer = {
  score: ([page, , , , score]) =>
    score + (page.startsWith("guides/") || page === "start" ? 4 : page.startsWith("reference/") ? -4 : 0),
  // The scores of Sphinx.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
