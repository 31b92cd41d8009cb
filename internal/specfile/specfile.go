// Package specfile reads files that people write, in YAML, as the JSON of a message of the contract: so such a file has exactly the fields that
// the contract has.
//
// It knows nothing of what the fields mean, but that some are lengths of time, which people write as 10m.
package specfile

import (
	"encoding/json"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Max bounds a file, in bytes.
const Max = 16 << 20

// JSON returns a file as JSON. times are the fields, at the top, that are lengths of time.
func JSON(data []byte, times ...string) ([]byte, error) {
	if len(data) > Max {
		return nil, fmt.Errorf("it has more than %d bytes", Max)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	for _, key := range times {
		text, ok := fields[key].(string)
		if !ok {
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return nil, fmt.Errorf("%s: write a time as 90s, 10m or 1h30m, and not %q", key, text)
		}
		fields[key] = fmt.Sprintf("%.9fs", d.Seconds())
	}
	return json.Marshal(fields)
}
