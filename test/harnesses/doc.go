// Package harnesses tries muxpost's entries for real agent programs on those programs, with a tmuxd as it ships and a model server on
// loopback that records what reached it. What arrived is judged by that record, never by a screen.
//
// MUXPOST_TEST_HARNESSES names the directories where the programs lie, as a PATH does. A program that is not there is reported as skipped:
// none of them is part of this repository, and no machine is expected to have them.
package harnesses
