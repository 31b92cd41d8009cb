package settings

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"strings"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/version"
)

// Program is the program of a service, whose command line is like that of the others.
type Program struct {
	Service layout.Service
	// About says what it does, in one sentence.
	About string
	// Flags defines flags of its own; nil for none. FlagsHelp are their lines in the help.
	Flags     func(*flag.FlagSet)
	FlagsHelp string
}

// Parse reads the command line, without the program's name, and puts its flags over here. A text is to be printed instead of
// serving: the help or the version. A mistake is fault.Invalid.
func (p Program) Parse(args []string, here Where) (where Where, text string, err error) {
	flags := flag.NewFlagSet(p.Service.Binary(), flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&here.File, "config", here.File, "")
	flags.StringVar(&here.DataDir, "data-dir", here.DataDir, "")
	showVersion := flags.Bool("version", false, "")
	if p.Flags != nil {
		p.Flags(flags)
	}
	err = flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return here, p.help(), nil
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case err == nil && *showVersion:
		return here, fmt.Sprintln(p.Service.Binary(), version.String()), nil
	}
	if err != nil {
		return here, "", fault.New(fault.Invalid, fault.ReasonBadArgument, err.Error()).
			WithRemedy(p.Service.Binary() + " --help lists the flags")
	}
	return here, "", nil
}

func (p Program) help() string {
	var b strings.Builder
	section := string(p.Service)
	fmt.Fprintf(&b, "%s %s\n\nUsage: %s [flags]\n\n", p.Service.Binary(), p.About, p.Service.Binary())
	b.WriteString(`  --config FILE     configuration (YAML); else $MUXPOST_CONFIG, else muxpost.yaml in
                    the data directory, else defaults
  --data-dir DIR    data directory, where traces are kept; else data_dir in the
                    configuration, else $MUXPOST_DATA_DIR, else /var/lib/muxpost
                    for root and ~/.local/share/muxpost otherwise
` + p.FlagsHelp + `  --version         print the version and exit
  --help            print this and exit

Keys of the section ` + section + `, which docs/configuration.md explains:
`)
	var values any = Dispatcher{}
	switch p.Service {
	case layout.Tmuxd:
		values = Tmuxd{}
	case layout.Poller:
		values = Poller{}
	case layout.Dispatcher:
	}
	writeKeys(&b, keysOf(reflect.TypeOf(values), ""))
	b.WriteString(`
A flag goes before the file, and the file before the environment, which only
fills in what the file leaves out:
  MUXPOST_CONFIG                names the file
  MUXPOST_DATA_DIR              names the data directory
`)
	if p.Service != layout.Tmuxd {
		b.WriteString("  MUXPOST_DATABASE_URL          is the database's URL\n")
	}
	b.WriteString("  OTEL_EXPORTER_OTLP_ENDPOINT   sends spans, metrics and logs to a collector too\n")
	return b.String()
}

// keysOf returns the keys of a section in the order of its struct. Those of lists and tables have too many entries to be listed.
func keysOf(t reflect.Type, prefix string) []string {
	var keys []string
	for i := range t.NumField() {
		field := t.Field(i)
		key := prefix + field.Tag.Get("conf")
		if field.Type.Kind() == reflect.Struct {
			keys = append(keys, keysOf(field.Type, key+".")...)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

// writeKeys writes keys in lines that fit a terminal.
func writeKeys(b *strings.Builder, keys []string) {
	const width = 78
	line := " "
	for i, key := range keys {
		if i < len(keys)-1 {
			key += ","
		}
		if len(line)+1+len(key) > width {
			b.WriteString(line + "\n")
			line = " "
		}
		line += " " + key
	}
	b.WriteString(line + "\n")
}
