package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"muxpost.dev/muxpost/cmd/muxpost/internal/view"
	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/specfile"
	teamv1 "muxpost.dev/muxpost/proto/gen/muxpost/team/v1"
)

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
	data, err := io.ReadAll(io.LimitReader(in, specfile.Max+1))
	if err != nil {
		return nil, bad(err)
	}
	asJSON, err := specfile.JSON(data, "limit", "stall")
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
