// The commands through which a test controls its fake, which runs in the process of the Python test.

/** Run a command of the Python test, e.g. `control("advance", "5s")`. */
export async function control(word, ...parameters) {
  const answer = await fetch(process.env.FAKE_CONTROL, { method: "POST", body: JSON.stringify([word, ...parameters]) });
  const result = await answer.json();
  if (!answer.ok) throw new Error(`${word}: ${result}`);
  return result;
}
