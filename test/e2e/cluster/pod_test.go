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

	"github.com/nodevirt/nodevirt/test/cluster/clustertest"
	"github.com/nodevirt/nodevirt/test/wait"
)

type object = map[string]any

const patience = wait.Patience

// Names of what prepare runs: a VM behind a Service, and a pod whose shell asks it.
const (
	vm    = "vm"
	shell = "shell"
)

// shared runs the guest that most tests look at. Its agent answers when it is Ready.
func shared(ctx context.Context) error {
	guest := vmPod(vm, suite.agent)
	guest["metadata"].(object)["labels"] = object{"app": vm}
	container(guest)["readinessProbe"] = object{
		"exec": object{"command": []string{"test", "-e", "/run/booted"}}, "timeoutSeconds": 10, "periodSeconds": 1,
	}
	service := object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": vm},
		"spec": object{"selector": object{"app": vm}, "ports": []object{{"port": 80}}},
	}
	asks := plainPod(shell, suite.busybox, "sleep", "1000000")
	asks["spec"].(object)["shareProcessNamespace"] = true // pause reaps what timeout(1) leaves
	for _, o := range []object{guest, service, asks} {
		if err := create(ctx, o); err != nil {
			return err
		}
	}
	for _, name := range []string{vm, shell} {
		if err := suite.WaitFor(ctx, "pod/"+name, "condition=Ready"); err != nil {
			return errors.Join(err, describe(ctx, name))
		}
	}
	return nil
}

// plainPod is a pod with one container.
func plainPod(name, image string, command ...string) object {
	c := object{"name": "c", "image": image}
	if len(command) > 0 {
		c["command"] = command
	}
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name},
		"spec": object{"containers": []object{c}, "terminationGracePeriodSeconds": 1},
	}
}

// vmPod is a pod that is a VM, with time to shut down.
func vmPod(name, image string) object {
	p := plainPod(name, image)
	spec := p["spec"].(object)
	spec["runtimeClassName"], spec["terminationGracePeriodSeconds"] = "vm", 60
	container(p)["resources"] = object{"limits": object{"memory": "128Mi", "cpu": "1"}, "requests": object{"cpu": "50m"}}
	return p
}

func container(pod object) object { return pod["spec"].(object)["containers"].([]object)[0] }

func create(ctx context.Context, o object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return suite.Apply(ctx, string(text))
}

// run creates a pod and deletes it when the test ends.
func run(t *testing.T, pod object) (name string) {
	t.Helper()
	name = pod["metadata"].(object)["name"].(string)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		if t.Failed() {
			t.Log(describe(ctx, name))
		}
		if _, err := suite.Kubectl(ctx, "delete", "pod", name, "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	assert.NilError(t, create(t.Context(), pod))
	return name
}

// ready creates a pod and waits until it is.
func ready(t *testing.T, pod object) (name string) {
	t.Helper()
	name = run(t, pod)
	assert.NilError(t, suite.WaitFor(t.Context(), "pod/"+name, "condition=Ready"))
	return name
}

// describe is what there is to know of a pod, as an error.
func describe(ctx context.Context, name string) error {
	about, _ := suite.Kubectl(ctx, "describe", "pod", name)
	logs, _ := suite.Kubectl(ctx, "logs", "--tail=30", name)
	return fmt.Errorf("--- kubectl describe pod %s\n%s--- kubectl logs %s\n%s", name, about, name, logs)
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	return clustertest.Kubectl(t, suite.Cluster, args...)
}

// field is one of a pod's, by a JSONPath without braces.
func field(t *testing.T, name, path string) string {
	t.Helper()
	return kubectl(t, "get", "pod", name, "-o", "jsonpath={"+path+"}")
}

// ask has the shell's pod fetch a page of a guest or a Service.
func ask(ctx context.Context, host, path string) (string, error) {
	return askFrom(ctx, shell, host, path)
}

func askFrom(ctx context.Context, pod, host, path string) (string, error) {
	// Not wget -T: in Debian's busybox it crashes.
	return suite.Kubectl(ctx, "exec", pod, "--", "timeout", "10", "wget", "-q", "-O", "-", "http://"+host+path)
}

// asked repeats ask until there is a page with a text in it: a Service that is new, or whose guest's probe
// just failed, has no endpoint for a moment, and a busy guest is slow.
func asked(t *testing.T, host, path, want string) (page string) {
	t.Helper()
	wait.Success(t, fmt.Sprintf("%q from %s%s", want, host, path), func(ctx context.Context) (err error) {
		if page, err = ask(ctx, host, path); err == nil && !strings.Contains(page, want) {
			err = fmt.Errorf("page: %q", page)
		}
		return err
	})
	return page
}

// said is what kubectl exec prints, once it works: who runs the command may just have been restarted.
func said(t *testing.T, pod string, command ...string) (out string) {
	t.Helper()
	wait.Success(t, fmt.Sprintf("%q in %s", command, pod), func(ctx context.Context) (err error) {
		out, err = suite.Kubectl(ctx, append([]string{"exec", pod, "--"}, command...)...)
		return err
	})
	return strings.TrimSpace(out)
}

// info is what a guest reports about itself.
type info struct {
	Hostname string
	BootID   string
}

// unnamed is the host name of a guest that is about to learn its own.
const unnamed = "(none)"

// answer asks a guest until it answers, under a name.
func answer(t *testing.T, host string) (i info) {
	t.Helper()
	wait.Success(t, "answer of "+host, func(ctx context.Context) error {
		page, err := ask(ctx, host, "/cgi-bin/info")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(page), &i); err != nil {
			return err
		}
		if i.Hostname == unnamed {
			return errors.New("it has no name yet")
		}
		return nil
	})
	return i
}
