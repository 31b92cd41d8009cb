package conf

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// index is the step of a path that names a list's element.
func index(i int) string { return fmt.Sprintf("[%d]", i) }

// name writes a path for people, as in dispatcher.hosts[2].address.
func name(path []string) string {
	return strings.ReplaceAll(strings.Join(path, "."), ".[", "[")
}

// describe says what kind of value stands in the file, without repeating it: it may be a secret in the wrong place.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "empty"
	case string:
		return "this text"
	case bool:
		return "a truth value"
	case int, int64, uint64:
		return "this whole number"
	case float64:
		return "this number"
	case []any:
		return "a list"
	case map[string]any, map[any]any:
		return "a group of keys"
	case time.Time:
		return "a date"
	}
	return fmt.Sprintf("a %T", value)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// nearest returns the known name that a typing mistake most likely meant, or "" when none is close: at most a third of the
// letters may differ, and one always may.
func nearest(key string, known []string) string {
	best, bestDistance := "", max(1, len(key)/3)+1
	for _, candidate := range slices.Sorted(slices.Values(known)) {
		if d := distance(fold(key), fold(candidate)); d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// fold makes spellings such as dataDir, data-dir and data_dir equal.
func fold(key string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "").Replace(strings.ToLower(key))
}

// distance is the number of letters to insert, delete or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			above := row[j]
			row[j] = min(row[j]+1, row[j-1]+1, diagonal)
			if a[i-1] != b[j-1] {
				row[j] = min(above+1, row[j-1]+1, diagonal+1)
			}
			diagonal = above
		}
	}
	return row[len(b)]
}
