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
	"muxpost.dev/muxpost/internal/inherit"
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
	if err := inherit.MkdirAll(dir, 0o700); err != nil {
		return files, fault.Wrap(fault.Invalid, fault.ReasonStorage, "the directory cannot be made", err)
	}
	return files, Replace(files, c.Cert, c.Key, a.PEM())
}

// AddressesIn returns the addresses in the certificate of a party that is in a directory, as Order takes them; none where there is no
// certificate of that party.
func AddressesIn(dir string, party identity.ID) (addresses []string) {
	cert, err := Read(FilesIn(dir).Cert)
	if err != nil {
		return nil
	}
	if name, _ := identity.NameOf(cert); name != party {
		return nil
	}
	addresses = append(addresses, cert.DNSNames...)
	for _, ip := range cert.IPAddresses {
		addresses = append(addresses, ip.String())
	}
	return addresses
}

// staged is a file that will be there whole or not at all, for its owner alone: where root writes it, the owner of the directory.
type staged struct {
	path, temporary string
	data            []byte
}

// write puts the data beside where it belongs.
func (s *staged) write() error {
	f, err := os.CreateTemp(filepath.Dir(s.path), "."+filepath.Base(s.path)+"-*") // its mode is 0600
	if err != nil {
		return err
	}
	s.temporary = f.Name()
	_, err = f.Write(s.data)
	return errors.Join(err, inherit.Owner(f), f.Sync(), f.Close())
}

// land puts it in its place, where it survives a power cut.
func (s *staged) land() error {
	if err := os.Rename(s.temporary, s.path); err != nil {
		return err
	}
	s.temporary = ""
	return syncDir(filepath.Dir(s.path))
}

// discard removes what did not land.
func (s *staged) discard() {
	if s.temporary != "" {
		_ = os.Remove(s.temporary) // it is of no use
	}
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// create writes a file that is not there yet.
func create(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, inherit.Owner(f), f.Sync(), f.Close())
	}
	if err != nil {
		return fault.Wrap(fault.Invalid, fault.ReasonStorage, "the authority cannot be written", err)
	}
	return nil
}

// openList opens the list to add to it, and makes it where there is none yet.
func openList(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	}
	if err != nil {
		return nil, err
	}
	if err := inherit.Owner(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
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
