package vmtest

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/nodevirt/nodevirt/shim/record"
)

// Store is a fake of [record.Store]: records are in memory, and containers'
// folders below a folder of the test's own.
type Store struct {
	script *Script
	dir    string

	mu         sync.Mutex
	sandboxes  map[string]record.Sandbox
	intents    map[string]record.Sandbox
	containers map[string]record.Container
	refused    []record.Refused
	ended      map[string]record.Ended
}

// PutEnded implements record's.
func (s *Store) PutEnded(uid string, e record.Ended) error {
	if err := s.script.note("Store.PutEnded"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[uid] = e
	return nil
}

// EndedOf implements record's.
func (s *Store) EndedOf(uid string) (record.Ended, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.ended[uid]
	return e, found, nil
}

// NewStore returns a Store without records.
func NewStore(s *Script, dir string) *Store {
	return &Store{
		script: s, dir: dir, sandboxes: map[string]record.Sandbox{}, intents: map[string]record.Sandbox{},
		containers: map[string]record.Container{}, ended: map[string]record.Ended{},
	}
}

// ContainerDir implements record's.
func (s *Store) ContainerDir(id string) string { return filepath.Join(s.dir, id) }

// PutContainer implements record's.
func (s *Store) PutContainer(r record.Container) error {
	if err := s.script.note("Store.PutContainer"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers[r.ID] = r
	return os.MkdirAll(s.ContainerDir(r.ID), 0o700)
}

// RemoveContainer implements record's.
func (s *Store) RemoveContainer(id string) error {
	if err := s.script.note("Store.RemoveContainer"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
	return os.RemoveAll(s.ContainerDir(id))
}

// PutSandbox implements record's.
func (s *Store) PutSandbox(r record.Sandbox) error {
	if err := s.script.note("Store.PutSandbox"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[r.ID] = r
	return nil
}

// RemoveSandbox implements record's.
func (s *Store) RemoveSandbox(id string) error {
	if err := s.script.note("Store.RemoveSandbox"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, id)
	return nil
}

// PutIntent implements record's.
func (s *Store) PutIntent(key string, r record.Sandbox) error {
	if err := s.script.note("Store.PutIntent"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intents[key] = r
	return nil
}

// RemoveIntent implements record's.
func (s *Store) RemoveIntent(key string) error {
	if err := s.script.note("Store.RemoveIntent"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.intents, key)
	return nil
}

// Intents implements record's.
func (s *Store) Intents() (map[string]record.Sandbox, error) {
	if err := s.script.note("Store.Intents"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.intents), nil
}

// Sandboxes implements record's.
func (s *Store) Sandboxes() ([]record.Sandbox, error) {
	if err := s.script.note("Store.Sandboxes"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.sandboxes)), nil
}

// Containers implements record's.
func (s *Store) Containers() ([]record.Container, error) {
	if err := s.script.note("Store.Containers"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.containers)), nil
}

// RemoveUnrecorded implements record's.
func (s *Store) RemoveUnrecorded(keep func(id string) bool) error {
	if err := s.script.note("Store.RemoveUnrecorded"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	folders, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, f := range folders {
		refused := slices.ContainsFunc(s.refused, func(r record.Refused) bool { return r.ID == f.Name() })
		if _, recorded := s.containers[f.Name()]; !recorded && !refused && !keep(f.Name()) {
			err = errors.Join(err, os.RemoveAll(s.ContainerDir(f.Name())))
		}
	}
	return err
}

// Lose loses the record of a container; its folder stays.
func (s *Store) Lose(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.containers, id)
}

// LoseAll loses all records, as if the root folder were another.
func (s *Store) LoseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.containers)
	clear(s.sandboxes)
	clear(s.intents)
}

// Sweep implements record's.
func (s *Store) Sweep() error { return s.script.note("Store.Sweep") }

// MoveBroken implements record's.
func (s *Store) MoveBroken() ([]record.Broken, error) { return nil, s.script.note("Store.MoveBroken") }

// Refused implements record's.
func (s *Store) Refused() ([]record.Refused, error) {
	if err := s.script.note("Store.Refused"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.refused), nil
}

// Refuse makes a record one that cannot be used. What is known of it stays.
func (s *Store) Refuse(kind, id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := record.Refused{Kind: kind, ID: id, Path: s.ContainerDir(id), Err: err, Container: s.containers[id], Sandbox: s.sandboxes[id]}
	r.Container.ID, r.Container.State, r.Sandbox.ID = id, record.Unknown, id
	s.refused = append(s.refused, r)
	delete(s.containers, id)
	delete(s.sandboxes, id)
}

// Damage makes a record one of which nothing can be read.
func (s *Store) Damage(id string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = append(s.refused, record.Refused{
		Kind: "container", ID: id, Path: s.ContainerDir(id), Err: err, Container: record.Container{ID: id, State: record.Unknown},
	})
	delete(s.containers, id)
}

// Container returns a container's record as it is on disk.
func (s *Store) Container(id string) (record.Container, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.containers[id]
	return r, ok
}
