package apiserver

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteKubeconfig writes a kubeconfig of a user.
func (s *Server) WriteKubeconfig(path string, user clientapi.AuthInfo) error {
	c := s.Config()
	authority, err := os.ReadFile(c.CAFile)
	if err != nil {
		return fmt.Errorf("read the API server's certificate: %w", err)
	}
	return clientcmd.WriteToFile(clientapi.Config{
		Clusters: map[string]*clientapi.Cluster{"c": {
			Server: c.Host, CertificateAuthorityData: authority, TLSServerName: c.ServerName,
		}},
		AuthInfos:      map[string]*clientapi.AuthInfo{"n": &user},
		Contexts:       map[string]*clientapi.Context{"x": {Cluster: "c", AuthInfo: "n"}},
		CurrentContext: "x",
	}, path)
}
