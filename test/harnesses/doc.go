// Package harnesses holds the contract that every entry for an agent program keeps, and tries it on the programs themselves, with a tmuxd as
// it ships. What arrived is judged by what a model server on loopback received, or by the bundled agent's own record, never by a screen.
//
// The bundled agent is always tried. MUXPOST_TEST_HARNESSES names the directories where real programs lie, as a PATH does. A program that is
// not there is reported as skipped: none of them is part of this repository, and no machine is expected to have them.
//
// The contract meets each situation once. The figures (make test-harnesses) meet them mixed, in an order that HARNESS_SEED gives, until
// HARNESS_PROMPTS deliveries were asked for and the program was killed HARNESS_KILLS times, and print what came of them.
package harnesses
