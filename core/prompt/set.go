package prompt

import (
	"bytes"
	"embed"
	"errors"
	"path"
	"reflect"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"muxpost.dev/muxpost/core/fault"
)

// Kind is what a template is for.
type Kind string

// The kinds, each with a built-in template.
const (
	Opened        Kind = "opened"
	Comment       Kind = "comment"
	Review        Kind = "review"
	ReviewComment Kind = "review_comment"
	StateChange   Kind = "state"
	Check         Kind = "check"
	Digest        Kind = "digest"
	Context       Kind = "context"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{Opened, Comment, Review, ReviewComment, StateChange, Check, Digest, Context}
}

// Extension is how the name of a template's file ends; before it stands the kind.
const Extension = ".tmpl"

// maxWords bounds what a template says itself, in bytes.
const maxWords = 16 << 10

//go:embed templates/*.tmpl
var builtIn embed.FS

// File is the text of a template of an operator's.
type File struct {
	// Path is where it stands; its last part is the kind with Extension.
	Path string
	Text string
}

// Set is a template for each kind. It is safe for use by many goroutines.
type Set struct {
	own, builtIn map[Kind]*template.Template
}

// Default returns the built-in templates.
func Default() *Set {
	s, err := NewSet(nil)
	if err != nil {
		panic("a built-in template is broken: " + err.Error()) // a test renders each
	}
	return s
}

// NewSet returns the built-in templates with some of them replaced. Each is executed on samples, so that a mistake is found here: what cannot
// be read, names a field or a function that there is not, says nothing, or does not place {{.Quoted}} once, is fault.Invalid with file and line.
func NewSet(files []File) (*Set, error) {
	s := &Set{own: map[Kind]*template.Template{}, builtIn: map[Kind]*template.Template{}}
	var problems []error
	for _, k := range Kinds() {
		text, err := builtIn.ReadFile("templates/" + string(k) + Extension)
		if err != nil {
			return nil, fault.Wrap(fault.Internal, "", "there is no built-in template for "+string(k), err)
		}
		s.builtIn[k], err = parsed(k, "built-in "+string(k)+Extension, string(text))
		problems = append(problems, err)
	}
	for _, f := range files {
		kind := Kind(strings.TrimSuffix(path.Base(f.Path), Extension))
		if !slices.Contains(Kinds(), kind) || !strings.HasSuffix(f.Path, Extension) {
			problems = append(problems, errors.New(f.Path+": there is no such template: the kinds are "+kindNames()))
			continue
		}
		t, err := parsed(kind, f.Path, f.Text)
		s.own[kind] = t
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, fault.New(fault.Invalid, fault.ReasonBadConfig, err.Error())
	}
	return s, nil
}

func kindNames() string {
	names := make([]string, len(Kinds()))
	for i, k := range Kinds() {
		names[i] = string(k) + Extension
	}
	return strings.Join(names, ", ")
}

// parsed reads a template and tries it.
func parsed(k Kind, name, text string) (*template.Template, error) {
	// The name is held by the template's errors, with the line behind it.
	t, err := template.New(name).Parse(text)
	if err != nil {
		return nil, plain(err)
	}
	if err := known(t); err != nil {
		return nil, err
	}
	for _, sample := range samples(k) {
		if _, err := execute(t, newView(k, sample, sampleNonce)); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// known finds fields that there are not, also in branches that no sample enters. All fields are plain values, so that a name behind a dot
// is a field of the event's wherever it stands.
func known(t *template.Template) error {
	names := reflect.TypeFor[*view]()
	bad := func(tree *parse.Tree, node parse.Node, fields []string) error {
		if _, ok := names.MethodByName(fields[0]); ok && len(fields) == 1 {
			return nil
		}
		if f, ok := names.Elem().FieldByName(fields[0]); ok && f.IsExported() && len(fields) == 1 {
			return nil
		}
		at, _ := tree.ErrorContext(node)
		return errors.New(at + ": there is no field ." + strings.Join(fields, ".") + ": the fields are " + strings.Join(Fields(), ", "))
	}
	for _, one := range t.Templates() {
		var problem error
		walk(reflect.ValueOf(one.Root), func(node parse.Node) {
			var err error
			switch n := node.(type) {
			case *parse.FieldNode:
				err = bad(one.Tree, n, n.Ident)
			case *parse.ChainNode:
				err = bad(one.Tree, n, n.Field)
			case *parse.VariableNode:
				if len(n.Ident) > 1 {
					err = bad(one.Tree, n, n.Ident[1:])
				}
			}
			if problem == nil {
				problem = err
			}
		})
		if problem != nil {
			return problem
		}
	}
	return nil
}

// walk visits every node of a tree.
func walk(v reflect.Value, visit func(parse.Node)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		if node, ok := v.Interface().(parse.Node); ok && v.Kind() == reflect.Pointer {
			visit(node)
		}
		walk(v.Elem(), visit)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[parse.Tree]() {
			return // each node leads back to it
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() || v.Type().Field(i).Anonymous {
				walk(v.Field(i), visit)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), visit)
		}
	default:
	}
}

// Fields lists what a template may name, in order.
func Fields() []string {
	t := reflect.TypeFor[*view]()
	var out []string
	for i := range t.NumMethod() {
		out = append(out, "."+t.Method(i).Name)
	}
	for i := range t.Elem().NumField() {
		if f := t.Elem().Field(i); f.IsExported() {
			out = append(out, "."+f.Name)
		}
	}
	slices.Sort(out)
	return out
}

// execute returns the text of an event: our line first, then what the template says, with the framed words of others where it puts them.
func execute(t *template.Template, v *view) (string, error) {
	var out bounded
	if err := t.Execute(&out, v); err != nil {
		return "", plain(err)
	}
	words, placed := out.String(), v.Quoted()
	switch strings.Count(words, placed) {
	case 1:
	case 0:
		return "", errors.New(t.Name() + ": what it says does not hold what others wrote: place {{.Quoted}}, outside of conditions")
	default:
		return "", errors.New(t.Name() + ": it places {{.Quoted}} more than once")
	}
	before, after, _ := strings.Cut(words, placed)
	text := v.header + "\n" + strings.TrimRight(before, " \t\n") + "\n" + v.quoted + "\n" + strings.TrimLeft(after, "\n")
	if strings.TrimSpace(before) == "" {
		text = v.header + "\n" + v.quoted + "\n" + strings.TrimLeft(after, "\n")
	}
	text, _, err := Clean(text)
	return text, err
}

// bounded keeps a template from saying more than maxWords.
type bounded struct{ bytes.Buffer }

// Write refuses what is too much.
func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxWords {
		return 0, errors.New("it says more than 16 KiB of its own")
	}
	return b.Buffer.Write(p)
}

// plain takes the package's own words off an error of a template.
func plain(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), "template: "))
}

// Render returns the text of an event. The first line is ours, whatever the template says. The nonce must be one that the writers could not
// know. A template of an operator's that cannot be executed on this event is replaced by the built-in one, and the first line says so: no
// event is lost to a template. An error is of the caller's: a kind that there is not, or a nonce that is too short.
func (s *Set) Render(k Kind, d Data, nonce string) (string, error) {
	if !slices.Contains(Kinds(), k) {
		return "", fault.Newf(fault.Internal, "", "there is no kind %q of text", string(k))
	}
	if len(nonce) < minNonce || strings.Trim(nonce, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") != "" {
		return "", fault.New(fault.Internal, "", "the nonce of a frame is too short, or holds more than letters and digits")
	}
	if own := s.own[k]; own != nil {
		if text, err := execute(own, newView(k, d, nonce)); err == nil {
			return text, nil
		}
		d.Notes = append(slices.Clip(d.Notes), "the template "+path.Base(own.Name())+" failed on this event, and the built-in one was taken")
	}
	return execute(s.builtIn[k], newView(k, d, nonce))
}
