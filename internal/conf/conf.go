// Package conf reads one section of the configuration file into a struct, strictly: an unknown key, a value of the wrong
// type or a number that does not fit is an error that names the key, its line, and the key that was probably meant.
//
// Defaults are the values already in the struct. The package knows no section by itself, reads no environment variable and
// opens no file but the one it is given: a field that ends in _file is read by whoever needs the secret in it.
package conf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	yamlparser "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/v2"
	"go.yaml.in/yaml/v3"

	"muxpost.dev/muxpost/core/fault"
)

// Load reads the section of the YAML file at path into the struct that into points to, over the defaults it holds.
//
// Fields carry the tag `conf:"name"`; a field without one cannot be set, and an embedded struct without one lends its
// fields. Durations are text with a unit ("30s"), sizes are integers; a type with UnmarshalText is read from text. A list
// replaces its default; a map is merged with it key by key. A missing section leaves the defaults alone.
//
// The sections are all names that may stand at the top of the file. Every mistake found is reported in one error of kind
// fault.Invalid, reason fault.ReasonBadConfig; no value is repeated in it, unless a type's own UnmarshalText does. After an
// error the struct is half filled.
func Load(path string, sections []string, section string, into any) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Newf(fault.Invalid, fault.ReasonBadConfig, "there is no configuration file at %s", path).
			WithRemedy("create it, or name another one with --config")
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "cannot read the configuration file", err).
			WithRemedy("check that it is a file and that this user may read it")
	}
	return parse(path, data, sections, section, into)
}

// parse is Load without the file system.
func parse(path string, data []byte, sections []string, section string, into any) error {
	target, err := structBehind(into)
	if err != nil {
		return err
	}
	// The delimiter never occurs in a key, so that names such as "example.com" stay whole.
	k := koanf.New("\x00")
	if err := k.Load(document(data), yamlparser.Parser()); err != nil {
		invalid := fault.Wrap(fault.Invalid, fault.ReasonBadConfig, path+" is not valid YAML", yamlError(err))
		if strings.Contains(err.Error(), "already defined") {
			return invalid.WithRemedy("write it once, with the keys of both")
		}
		return invalid
	}
	d := decoder{lines: newLines(data)}
	top := k.Raw()
	for _, key := range sortedKeys(top) {
		if !slices.Contains(sections, key) {
			d.unknown(nil, key, sections)
		}
	}
	if value, ok := top[section]; ok {
		d.decode([]string{section}, value, target)
	}
	return d.fault(path)
}

// document hands bytes that are already in memory to koanf.
type document []byte

// ReadBytes returns the bytes.
func (d document) ReadBytes() ([]byte, error) { return d, nil }

// Read is not used: a parser is always given.
func (d document) Read() (map[string]any, error) { return nil, errors.New("conf: a parser is needed") }

// yamlError drops the library's prefix and Go's type names, which mean nothing to the person who wrote the file.
func yamlError(err error) error {
	text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "into map[string]interface {}", "as sections with keys")
	return errors.New(strings.ReplaceAll(text, "\n", " "))
}

// problem is one mistake in the file.
type problem struct {
	line int // 0 when it is not known
	text string
}

// fault returns the mistakes as one error, or nil.
func (d *decoder) fault(path string) error {
	if len(d.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(d.problems, func(a, b problem) int { return a.line - b.line })
	texts := make([]string, len(d.problems))
	for i, p := range d.problems {
		texts[i] = path + ": " + p.text
		if p.line > 0 {
			texts[i] = fmt.Sprintf("%s:%d: %s", path, p.line, p.text)
		}
	}
	return fault.New(fault.Invalid, fault.ReasonBadConfig, strings.Join(texts, "\n"))
}

// lines finds the line of a key.
type lines struct{ root *yaml.Node }

// newLines parses the document once more, for positions only; a document it cannot parse has no lines.
func newLines(data []byte) lines {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil || len(doc.Content) == 0 {
		return lines{}
	}
	return lines{root: doc.Content[0]}
}

// of returns the line on which the key at the path stands, or 0.
func (l lines) of(path []string) int {
	node, line := l.root, 0
	for _, step := range path {
		key, value := child(node, step)
		if value == nil {
			return line
		}
		node, line = value, key.Line
	}
	return line
}

// child returns the key and value nodes of one step below node; of a list element both are the element.
func child(node *yaml.Node, step string) (key, value *yaml.Node) {
	if node == nil {
		return nil, nil
	}
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i], node.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		for i, element := range node.Content {
			if step == index(i) {
				return element, element
			}
		}
	}
	return nil, nil
}
