"use strict"

const { optionalDependencies } = require("../package.json")

/**
 * Return the path of the program that runs the fakes.
 *
 * It is in an optional dependency, of which npm installs the one for this platform. The variable
 * `PYTEST_FAKECLOUD_PROGRAM` has the path of another program, such as that of the Python package.
 *
 * @returns {string}
 */
exports.programPath = function () {
  const own = process.env.PYTEST_FAKECLOUD_PROGRAM
  if (own) return own
  const platform = `${process.platform}-${process.arch}`
  const name = `@pytest-fakecloud/${platform}`
  try {
    return require.resolve(`${name}/program/pytest-fakecloud${process.platform === "win32" ? ".exe" : ""}`)
  } catch {
    const python = "pipx install pytest-fakecloud, and set PYTEST_FAKECLOUD_PROGRAM to the path of its command"
    throw new Error(
      name in optionalDependencies
        ? `${name} is not installed: install without --omit=optional, on the platform that runs the tests (on Linux, one with glibc), or ${python}`
        : `there is no program for ${platform}: ${python}`,
    )
  }
}
