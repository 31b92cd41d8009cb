package authority

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/identity"
)

// FilesIn are the files of a party in a directory.
func FilesIn(dir string) identity.Files {
	return identity.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), CA: filepath.Join(dir, certFile)}
}

// WriteTo writes a certificate, its key and the authority's certificate into a directory, in the place of older ones of the same party.
// Those of another are fault.Conflict. Whoever reads the files in between goes on with the older ones (internal/identity).
func (a *Authority) WriteTo(dir string, c Certificate) (identity.Files, error) {
	files := FilesIn(dir)
	if old, err := Read(files.Cert); err == nil {
		if name, _ := identity.NameOf(old); name != c.Name {
			return files, fault.Newf(fault.Conflict, "", "%s is the certificate of %q", files.Cert, name).WithRemedy("choose another directory with --out")
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return files, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the directory cannot be made", err)
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{files.CA, a.PEM()}, {files.Key, c.Key}, {files.Cert, c.Cert}} {
		if err := replace(f.path, f.data); err != nil {
			return files, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the certificate cannot be written", err)
		}
	}
	return files, nil
}

// replace writes a file that is there whole or not at all, for its owner alone.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // its mode is 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}

// create writes a file that is not there yet.
func create(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the authority cannot be written", err)
	}
	return nil
}

func parseList(text []byte) (out []Issued) {
	for line := range bytes.Lines(text) {
		var i Issued
		if json.Unmarshal(line, &i) == nil {
			out = append(out, i)
		}
	}
	return out
}
