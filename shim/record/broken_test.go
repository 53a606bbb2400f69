package record_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/nodevirt/nodevirt/shim/record"
)

func TestMoveBroken(t *testing.T) {
	s, root := open(t)
	if err := errors.Join(s.PutSandbox(sandbox()), s.PutIntent(idB, record.Sandbox{Config: sandbox().Config})); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{idC + ".json": "sandbox", idC + ".intent": "intent"} {
		write(t, filepath.Join(root, "sandboxes", path), `{"version": 3, "id": "x"}`)
		broken, err := s.MoveBroken()
		if err != nil || len(broken) != 1 || broken[0].Kind != kind || broken[0].ID != idC {
			t.Errorf("%s: %+v, %v", path, broken, err)
		}
	}
	// The others are as they were, and a newer version's stay where they are.
	write(t, filepath.Join(root, "sandboxes", idC+".json"), `{"version": 99, "id": {"of": "another form"}}`)
	if broken, err := s.MoveBroken(); err != nil || len(broken) > 0 {
		t.Errorf("of sound and newer records: %+v, %v", broken, err)
	}
	sandboxes, err := s.Sandboxes()
	intents, err2 := s.Intents()
	if err := errors.Join(err, err2); err != nil || len(sandboxes) != 1 || len(intents) != 1 {
		t.Errorf("left: %d sandboxes, %d intents, %v", len(sandboxes), len(intents), err)
	}
}
