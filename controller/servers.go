package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/api"
	"github.com/nodevirt/nodevirt/controller/certs"
	"github.com/nodevirt/nodevirt/controller/kinds"
	"github.com/nodevirt/nodevirt/controller/subresources"
)

const (
	// service and webhooks are names of objects in deploy/kubernetes, certificate
	// that of the Secret which its Role lets the controller write.
	service     = "nodevirt-controller"
	webhooks    = "nodevirt-controller"
	certificate = "nodevirt-controller-tls"
	// namespaceFile has the namespace of a container's pod.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// addServers has the manager serve what the API server comes for, on all replicas
// and with one certificate.
func addServers(m manager.Manager, cluster *rest.Config, o Options, log *slog.Logger) error {
	if !served(o.WebhookAddress) && !served(o.SubresourcesAddress) {
		return nil
	}
	keeper, err := newKeeper(cluster, o, log)
	if err != nil {
		return err
	}
	if err := m.Add(keeper); err != nil {
		return fmt.Errorf("add the certificate: %w", err)
	}
	if served(o.WebhookAddress) {
		if err := addWebhooks(m, o, keeper); err != nil {
			return err
		}
	}
	if served(o.SubresourcesAddress) {
		return addSubresources(m, cluster, o, keeper, log)
	}
	return nil
}

func served(address string) bool { return address != "" && address != "0" }

func addWebhooks(m manager.Manager, o Options, keeper *certs.Keeper) error {
	keeper.Trust = append(keeper.Trust, certs.MutatingWebhooks(webhooks), certs.ValidatingWebhooks(webhooks))
	server, err := newServer(o.WebhookAddress, keeper)
	if err != nil {
		return err
	}
	admission.Webhooks{Kinds: kinds.Rules(), Presets: presets(m.GetAPIReader())}.Register(server)
	if err := m.Add(server); err != nil {
		return fmt.Errorf("add the webhooks: %w", err)
	}
	if err := m.AddReadyzCheck("webhooks", server.StartedChecker()); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return nil
}

func addSubresources(m manager.Manager, cluster *rest.Config, o Options, keeper *certs.Keeper, log *slog.Logger) error {
	keeper.Trust = append(keeper.Trust, certs.APIServices(subresources.Group, subresources.Versions...))
	server, err := subresources.New(subresources.Options{
		Address: o.SubresourcesAddress, Certificate: keeper.GetCertificate, Config: cluster,
		Scheme: m.GetScheme(), Version: o.Version, Log: log,
	})
	if err != nil {
		return err
	}
	if err := m.Add(server); err != nil {
		return fmt.Errorf("add the subresources: %w", err)
	}
	if err := m.AddReadyzCheck("subresources", server.Ready); err != nil {
		return fmt.Errorf("add readiness check: %w", err)
	}
	return nil
}

// presets reads from the API server: one that was applied right before an instance counts.
func presets(live client.Reader) admission.Presets {
	return func(ctx context.Context, namespace string) ([]unstructured.Unstructured, error) {
		list := new(unstructured.UnstructuredList)
		list.SetGroupVersionKind(kubevirt.VirtualMachineInstancePresetGroupVersionKind)
		err := live.List(ctx, list, client.InNamespace(namespace))
		return list.Items, err
	}
}

func newServer(address string, keeper *certs.Keeper) (webhook.Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("webhook address %q: %w", address, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, fmt.Errorf("webhook address %q: %q is no port", address, port)
	}
	return webhook.NewServer(webhook.Options{
		Host: host, Port: int(number),
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = keeper.GetCertificate
			c.MinVersion = tls.VersionTLS13 // API servers are written in Go
		}},
	}), nil
}

func newKeeper(cluster *rest.Config, o Options, log *slog.Logger) (*certs.Keeper, error) {
	namespace := o.Namespace
	if namespace == "" {
		text, err := os.ReadFile(namespaceFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, errors.New("no namespace: this is no pod; say which one, or serve no webhooks")
		} else if err != nil {
			return nil, fmt.Errorf("read the pod's namespace: %w", err)
		}
		namespace = strings.TrimSpace(string(text))
	}
	scheme, err := api.NewScheme()
	if err != nil {
		return nil, err
	}
	// Not the manager's: what it reads it caches.
	c, err := client.New(cluster, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("set up the webhooks' client: %w", err)
	}
	return &certs.Keeper{
		Client:  c,
		Secret:  types.NamespacedName{Namespace: namespace, Name: certificate},
		DNSName: service + "." + namespace + ".svc",
		Now:     time.Now,
		Log:     log,
	}, nil
}
