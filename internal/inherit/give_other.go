//go:build !unix

package inherit

import "os"

func give(*os.File, string) error { return nil }

func openDir(dir string) (*os.File, error) { return os.Open(dir) }
