package main

import (
	"errors"
	"strings"
	"testing"

	"muxpost.dev/muxpost/core/fault"
)

func TestDrill_SaysWhereItsProgramComesFrom(t *testing.T) {
	d := newDesk(t)
	c := drillCommand(d.app)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"--help"})
	if err := c.Execute(); !errors.Is(err, fault.NotFound) || !strings.Contains(err.Error(), drillProgram) {
		t.Errorf("%v", err)
	}
}
