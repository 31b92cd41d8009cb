package settings

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/core/prompt"
)

// maxTemplate is the largest file of a template, in bytes.
const maxTemplate = 64 << 10

// TemplateSet returns the templates of events: the built-in ones, and in their place those of the directory, each in a file of its kind's name
// with prompt.Extension. Other files are let alone. A mistake is named with file and line.
func (c *Poller) TemplateSet() (*prompt.Set, error) {
	var files []prompt.File
	if c.Templates != "" {
		entries, err := os.ReadDir(c.Templates)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "the directory cannot be read", err)
		}
		for _, e := range entries {
			path := filepath.Join(c.Templates, e.Name())
			if !strings.HasSuffix(path, prompt.Extension) {
				continue
			}
			info, err := os.Stat(path)
			if err == nil && (!info.Mode().IsRegular() || info.Size() > maxTemplate) {
				err = fmt.Errorf("%s is not a regular file of at most %d bytes", path, maxTemplate)
			}
			var text []byte
			if err == nil {
				text, err = os.ReadFile(path)
			}
			if err != nil {
				return nil, fault.Wrap(fault.Invalid, fault.ReasonBadConfig, "a template cannot be read", err)
			}
			files = append(files, prompt.File{Path: path, Text: string(text)})
		}
	}
	return prompt.NewSet(files)
}
