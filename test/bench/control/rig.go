package control

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/test/apiserver"
	"github.com/nodevirt/nodevirt/test/cluster/pki"
	"github.com/nodevirt/nodevirt/test/daemon"
)

// rig is an API server with the controller's replicas, and with a scheduler and KWOK if there are nodes.
type rig struct {
	Options
	dir      string
	server   *apiserver.Server
	client   client.Client
	replicas []*replica
	daemons  map[string]*daemon.Daemon // the others, by name
}

// replicas are as many as deploy/kubernetes/controller.yaml has.
const replicas = 2

const controllerNamespace = "nodevirt"

// namespace is the controller's. There are no webhooks: without a network of pods the API server
// could not reach them.
const namespace = `apiVersion: v1
kind: Namespace
metadata: {name: ` + controllerNamespace + `}
`

func newRig(ctx context.Context, o Options, dir string) (r *rig, err error) {
	r = &rig{Options: o, dir: dir, daemons: map[string]*daemon.Daemon{}}
	defer func() {
		if err != nil {
			r.stop()
		}
	}()
	fmt.Fprintln(r.Log, "start an API server")
	proxy, err := frontProxyFlags(dir)
	if err != nil {
		return r, err
	}
	if r.server, err = apiserver.Start(ctx, dir, append(append(proxy, admitNodes), auditFlags(dir)...)...); err != nil {
		return r, err
	}
	file := filepath.Join(dir, "namespace.yaml")
	if err := os.WriteFile(file, []byte(namespace), 0o600); err != nil {
		return r, err
	}
	deploy := func(name string) string { return filepath.Join(o.Checkout, "deploy", name) }
	if err := r.server.Apply(ctx, file, deploy("crds/*.yaml"),
		deploy("kubernetes/runtimeclass.yaml"), deploy("kubernetes/apiservice.yaml")); err != nil {
		return r, err
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return r, err
	}
	if r.client, err = client.New(r.server.Config(), client.Options{Scheme: scheme, Mapper: api.NewMapper(scheme)}); err != nil {
		return r, fmt.Errorf("reach the API server: %w", err)
	}
	for i := range replicas {
		p, err := r.start(i)
		if err != nil {
			return r, err
		}
		r.replicas = append(r.replicas, p)
	}
	if r.Nodes > 0 {
		if err := r.startNodes(ctx); err != nil {
			return r, err
		}
	}
	return r, r.working(ctx)
}

// frontProxyFlags make the API server publish the front proxy's CA, which the controller waits
// for.
func frontProxyFlags(dir string) ([]string, error) {
	authority, err := pki.NewAuthority("front-proxy")
	if err != nil {
		return nil, err
	}
	pair, err := authority.Pair()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "front-proxy.crt")
	return []string{
		"--requestheader-client-ca-file=" + file, "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}, os.WriteFile(file, pair.Cert, 0o600)
}

func (r *rig) stop() {
	for _, p := range r.replicas {
		p.Stop()
	}
	for _, d := range r.daemons {
		d.Stop()
	}
	r.server.Close()
}

// logs are the ends of the logs.
func (r *rig) logs() string {
	var b strings.Builder
	for _, d := range r.daemons {
		b.WriteString(d.Tail())
	}
	for _, p := range r.replicas {
		b.WriteString(p.Tail())
	}
	return b.String()
}

// working returns when the controller has made a pod, so that its caches are full.
func (r *rig) working(ctx context.Context) error {
	if err := r.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "first"}}); err != nil {
		return err
	}
	if err := r.client.Create(ctx, instance("first", "first")); err != nil {
		return err
	}
	return r.await(ctx, "first", 1)
}

// await waits for the pods of a namespace.
func (r *rig) await(ctx context.Context, ns string, n int) error {
	for {
		made, err := r.pods(ctx, ns)
		if err == nil && made == n {
			return nil
		}
		for _, p := range r.replicas {
			if p.Ended() {
				return fmt.Errorf("a controller has ended:\n%s", p.Tail())
			}
		}
		if wait := sleep(ctx, 20*time.Millisecond); wait != nil {
			return fmt.Errorf("%d of %d pods: %w, %w\n%s", made, n, wait, err, r.logs())
		}
	}
}

// pods counts a namespace's pods, by their metadata alone.
func (r *rig) pods(ctx context.Context, ns string) (int, error) {
	var pods metav1.PartialObjectMetadataList
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.client.List(ctx, &pods, client.InNamespace(ns), client.Limit(1)); err != nil {
		return 0, err
	}
	n := len(pods.Items)
	if pods.RemainingItemCount != nil {
		n += int(*pods.RemainingItemCount)
	}
	return n, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
