package admission

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller"
	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

const (
	root = "../../../"
	// system is the controller's namespace, and account its user.
	system  = "nodevirt"
	account = "system:serviceaccount:nodevirt:nodevirt-controller"
)

// suite is what all tests share.
var suite struct {
	server *apiserver.Server
	stop   func() error
}

func TestMain(m *testing.M) {
	needs.PartsOfAll("kube-apiserver and etcd")
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nodevirt-admission-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	suite.server, err = apiserver.Start(ctx, dir)
	defer suite.server.Close()
	if err != nil {
		return 1, err
	}
	port, err := apiserver.FreePort()
	if err != nil {
		return 1, err
	}
	files, err := manifests(dir, port)
	if err != nil {
		return 1, err
	}
	if err := suite.server.Apply(ctx, files...); err != nil {
		return 1, err
	}
	startController(port)
	defer func() { err = errors.Join(err, suite.stop()) }()
	if err := admitting(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// manifests are deploy's, but that the controller is at a port of this machine.
func manifests(dir string, port int) ([]string, error) {
	files := []string{
		root + "deploy/kubernetes/namespace.yaml",
		root + "deploy/kubernetes/serviceaccount.yaml",
		root + "deploy/kubernetes/rbac.yaml",
		root + "deploy/kubernetes/policies.yaml",
		root + "deploy/kubernetes/runtimeclass.yaml",
		root + "deploy/crds/*.yaml",
	}
	text, err := os.ReadFile(root + "deploy/kubernetes/webhooks.yaml")
	if err != nil {
		return nil, err
	}
	const servicePort = "port: 443\n"
	if bytes.Count(text, []byte(servicePort)) != 2 {
		return nil, errors.New("webhooks.yaml names no port of the service, twice")
	}
	text = bytes.ReplaceAll(text, []byte(servicePort), fmt.Appendf(nil, "port: %d\n", port))
	text = append(text, `---
apiVersion: v1
kind: Service
metadata: {name: nodevirt-controller, namespace: nodevirt}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
`...)
	file := filepath.Join(dir, "webhooks.yaml")
	return append(files, file), os.WriteFile(file, text, 0o600)
}

// startController runs the controller as its own service account, with the rights
// that deploy gives it.
func startController(port int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- controller.Run(ctx, as(account, "system:authenticated"), controller.Options{
			RuntimeClass: "vm", MetricsAddress: "0", HealthAddress: "0",
			WebhookAddress: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Namespace: system,
		}, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	}()
	suite.stop = func() error {
		cancel()
		return <-done
	}
}

// as is how a user comes to the API server.
func as(user string, groups ...string) *rest.Config {
	config := suite.server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

func newClient(config *rest.Config) (client.Client, error) {
	return client.New(config, client.Options{})
}

// admitting waits until the API server asks the controller, and trusts it, and
// until it goes by the policies.
func admitting(ctx context.Context) error {
	c, err := newClient(suite.server.Config())
	if err != nil {
		return err
	}
	vmi := new(unstructured.Unstructured)
	vmi.SetUnstructuredContent(map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "first", "namespace": "default"}, "spec": map[string]any{},
	})
	pod := new(unstructured.Unstructured)
	pod.SetUnstructuredContent(map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": "first", "namespace": "default", "annotations": map[string]any{"nodevirt.io/x": ""}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "x", "image": "x"}}},
	})
	for _, refused := range []struct {
		object *unstructured.Unstructured
		answer string
	}{{vmi, "spec.domain.memory.guest"}, {pod, "only nodevirt's controller"}} {
		err := wait.Do(ctx, func(ctx context.Context) error {
			err := c.Create(ctx, refused.object.DeepCopy(), client.DryRunAll)
			if err != nil && strings.Contains(err.Error(), refused.answer) {
				return nil
			}
			return fmt.Errorf("the API server does not say %q: %w", refused.answer, err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
