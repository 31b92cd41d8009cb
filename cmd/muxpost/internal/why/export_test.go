package why

import (
	"maps"
	"slices"
)

// OfLedger are the reasons of the ledger, and of the policy that judges events as they come in.
func OfLedger() []string { return slices.Sorted(maps.Keys(settled())) }
