package rpc

import (
	"testing"

	"muxpost.dev/muxpost/core/fault"
	faultv1 "muxpost.dev/muxpost/proto/gen/muxpost/fault/v1"
)

func TestReasons_AreTheContractsReasons(t *testing.T) {
	want := map[string]bool{faultv1.Reason_REASON_UNSPECIFIED.String(): true}
	for _, r := range fault.Reasons() {
		want[ReasonName(r)] = true
		if _, ok := faultv1.Reason_value[ReasonName(r)]; !ok {
			t.Errorf("the contract has no %s", ReasonName(r))
		}
	}
	for name := range faultv1.Reason_value {
		if !want[name] {
			t.Errorf("the contract has %s, which no fault gives", name)
		}
	}
}
