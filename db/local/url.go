package local

import (
	"context"
	"errors"
	"os"
	"time"

	"muxpost.dev/muxpost/core/fault"
	"muxpost.dev/muxpost/internal/layout"
	"muxpost.dev/muxpost/internal/settings"
)

// attachTime bounds the search for the local cluster.
const attachTime = 3 * time.Second

// ServiceURL returns the URL of the database that the configuration or the environment names for a service, and else that of the cluster
// that muxpost up keeps in the data directory. A cluster that does not run is fault.Unavailable; none at all is fault.Invalid.
func ServiceURL(ctx context.Context, s settings.Settings, service layout.Service) (string, error) {
	named := s.Poller.DatabaseURL + s.Poller.DatabaseURLFile
	if service == layout.Dispatcher {
		named = s.Dispatcher.DatabaseURL + s.Dispatcher.DatabaseURLFile
	}
	url, err := s.DatabaseURL(service)
	if err == nil || named != "" {
		return url, err
	}
	if _, missing := os.Stat(s.DataDir.Postgres()); missing != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, attachTime)
	defer cancel()
	cluster, attachErr := Attach(ctx, s.DataDir.Postgres())
	if errors.Is(attachErr, fault.NotFound) {
		return "", fault.Newf(fault.Unavailable, fault.ReasonDatabase, "no database is named, and the local one in %s does not run",
			s.DataDir.Postgres()).WithRemedy("start it with muxpost up, or name another in " + string(service) + ".database_url_file")
	}
	if attachErr != nil {
		return "", attachErr
	}
	return cluster.URL(layout.Database), nil
}
