package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// store is a folder of objects. Each has a folder there, of its id, with its record and its data.
type store[T any] struct{ dir string }

func (s store[T]) path(id, name string) string { return filepath.Join(s.dir, id, name) }

// data is an object's file.
func (s store[T]) data(id string) string { return s.path(id, "data") }

func (s store[T]) record(id string) string { return s.path(id, "record.json") }

// get reads a record; fs.ErrNotExist if there is no such object.
func (s store[T]) get(id string) (*T, error) {
	if !isID(id) {
		return nil, fmt.Errorf("find %q: %w", id, fs.ErrNotExist)
	}
	text, err := os.ReadFile(s.record(id))
	if err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	var o T
	if err := json.Unmarshal(text, &o); err != nil {
		return nil, fmt.Errorf("read the record of %s: %w", id, err)
	}
	return &o, nil
}

// put writes the record of an object that is there.
func (s store[T]) put(id string, o *T) error { return write(s.record(id), o) }

func write(path string, o any) error {
	text, err := json.Marshal(o)
	if err == nil {
		err = renameio.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// create makes an object, whose data fill writes. It is there as a whole or not at all.
func (s store[T]) create(id string, o *T, fill func(*os.File) error) (err error) {
	folder := ".new-" + id
	if err := os.RemoveAll(filepath.Join(s.dir, folder)); err != nil { // a driver that was killed left it
		return fmt.Errorf("make %s: %w", id, err)
	}
	if err := os.Mkdir(filepath.Join(s.dir, folder), 0o700); err != nil {
		return fmt.Errorf("make %s: %w", id, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.dir, folder)))
		}
	}()
	data, err := os.OpenFile(s.data(folder), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make %s: %w", id, err)
	}
	if err := errors.Join(fill(data), data.Close()); err != nil {
		return fmt.Errorf("fill %s: %w", id, err)
	}
	if err := s.put(folder, o); err != nil {
		return err
	}
	return os.Rename(filepath.Join(s.dir, folder), filepath.Join(s.dir, id))
}

// remove removes an object, which may be missing.
func (s store[T]) remove(id string) error {
	if !isID(id) {
		return nil
	}
	gone := filepath.Join(s.dir, ".gone-"+id)
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	err := os.Rename(filepath.Join(s.dir, id), gone)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", id, err)
	}
	return os.RemoveAll(gone)
}

// list returns the ids of all objects, sorted.
func (s store[T]) list() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if isID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
