package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

// maxSpecFile bounds what is read of a file.
const maxSpecFile = 16 << 20

// readSpec reads what a run is asked to do, in YAML, of which JSON is a part. The fields are those of the contract; times are written as 10m or 1h30m.
func (a *app) readSpec(path string) (*teamv1.Spec, error) {
	bad := func(err error) error {
		return fault.Newf(fault.Invalid, fault.ReasonBadArgument, "%s cannot be read as a team: %s", path, view.Clean(err.Error())).
			WithRemedy("docs/teams.md has every key, and docs/examples/team.yaml is a team")
	}
	in := a.stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, bad(err)
		}
		defer file.Close() //nolint:errcheck // it was only read
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, maxSpecFile+1))
	if err != nil {
		return nil, bad(err)
	}
	if len(data) > maxSpecFile {
		return nil, bad(fmt.Errorf("it has more than %d bytes", maxSpecFile))
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, bad(err)
	}
	for _, key := range []string{"limit", "stall"} {
		if text, ok := fields[key].(string); ok {
			d, err := time.ParseDuration(text)
			if err != nil {
				return nil, bad(fmt.Errorf("%s: write a time as 90s, 10m or 1h30m, and not %q", key, text))
			}
			fields[key] = fmt.Sprintf("%.9fs", d.Seconds())
		}
	}
	asJSON, err := json.Marshal(fields)
	if err != nil {
		return nil, bad(err)
	}
	spec := &teamv1.Spec{}
	if err := protojson.Unmarshal(asJSON, spec); err != nil {
		// What the library says begins with its own name and a place in the JSON that nobody wrote.
		_, said, _ := strings.Cut(err.Error(), "): ")
		return nil, bad(fmt.Errorf("%s", strings.TrimSpace(said)))
	}
	return spec, nil
}
