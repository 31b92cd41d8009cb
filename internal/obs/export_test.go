package obs

// OfProcess is ofProcess for the test that holds docs/metrics.md to it.
var OfProcess = ofProcess
