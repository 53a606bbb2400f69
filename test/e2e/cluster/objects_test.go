//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/wait"
)

// made creates an object, and deletes it when the test ends, with what there is to know of it if that failed.
func made(t *testing.T, o object) (name string) {
	t.Helper()
	name = o["metadata"].(object)["name"].(string)
	kind := strings.ToLower(o["kind"].(string))
	undo(t, func(ctx context.Context) error {
		if t.Failed() {
			about, _ := suite.Kubectl(ctx, "describe", kind, name)
			more, _ := suite.Kubectl(ctx, "describe", "vmi,pods", "--selector="+byName+"="+name)
			t.Logf("%s\n%s", about, more)
		}
		_, err := suite.Kubectl(ctx, "delete", kind, name, "--ignore-not-found")
		return err
	})
	assert.NilError(t, create(t.Context(), o))
	return name
}

// instanceOf is a VMI of guest.Tiny.
func instanceOf(name string) object { return strangersVMI(name, func(_, _, _ object) {}) }

// machineOf is a VM of such an instance, which is always to run.
func machineOf(name string) object {
	return object{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": object{"name": name},
		"spec": object{"runStrategy": "Always", "template": object{"spec": instanceOf(name)["spec"]}},
	}
}

// undo calls do when the test has ended.
func undo(t *testing.T, do func(context.Context) error) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if err := do(ctx); err != nil {
			t.Error(err)
		}
	})
}

// vmiField is one of an instance's, by a JSONPath without braces.
func vmiField(t *testing.T, name, path string) string {
	t.Helper()
	return kubectl(t, "get", "vmi", name, "-o", "jsonpath={"+path+"}")
}

// answerOf asks the guest of an instance until one answers that is not of a former boot.
func answerOf(t *testing.T, name, former string) (boot string) {
	t.Helper()
	wait.Success(t, "an answer of "+name, func(ctx context.Context) error {
		ip, err := suite.Kubectl(ctx, "get", "vmi", name, "-o", "jsonpath={.status.interfaces[0].ipAddress}")
		if err != nil {
			return err
		}
		i, err := infoFor(ctx, shell, ip)
		if boot = i.BootID; err == nil && boot == former {
			err = errors.New("it is the former boot")
		}
		return err
	})
	return boot
}

// infoFor has a pod ask what answers at a host.
func infoFor(ctx context.Context, pod, host string) (i info, err error) {
	if host == "" {
		return i, errors.New("no address yet")
	}
	page, err := askFrom(ctx, pod, host, "/cgi-bin/info")
	if err != nil {
		return i, err
	}
	if err := json.Unmarshal([]byte(page), &i); err != nil {
		return i, fmt.Errorf("answer %q: %w", page, err)
	}
	return i, nil
}

// sent runs kubectl with an object as its input, and returns all that it writes.
func sent(t *testing.T, o object, args ...string) (string, error) {
	t.Helper()
	text, err := json.Marshal(o)
	assert.NilError(t, err)
	cmd := suite.KubectlCommand(t.Context(), args...)
	cmd.Stdin = strings.NewReader(string(text))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
