package main

import (
	"testing"

	"muxpost.dev/muxpost/internal/settings"
	"muxpost.dev/muxpost/services/dispatcher/internal/deliver"
)

func TestFirstSpawn_IsForbiddenByKind(t *testing.T) {
	for policy, forbidden := range map[string]map[deliver.Kind]bool{
		settings.FirstSpawnAny:    {},
		settings.FirstSpawnOpened: {deliver.Comment: true, deliver.Review: true, deliver.ReviewComment: true, deliver.State: true, deliver.Check: true},
		settings.FirstSpawnNever: {deliver.Opened: true, deliver.Comment: true, deliver.Message: true, deliver.Review: true,
			deliver.ReviewComment: true, deliver.State: true, deliver.Check: true},
	} {
		forbids := forbids(policy)
		for _, kind := range deliver.Kinds() {
			if got := forbids != nil && forbids(kind); got != forbidden[kind] {
				t.Errorf("%s, %s: %v", policy, kind, got)
			}
		}
	}
}
