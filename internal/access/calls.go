package access

import "strings"

// need is what a call needs.
type need struct {
	role Role
	// services says that a service makes the call too, whatever the role.
	services bool
	// open calls are for everybody.
	open bool
	// host says that a host makes the call by its certificate, and nobody else, whatever the role.
	host bool
}

// methods returns what every call of the operator APIs needs. A call that is not here needs Admin.
func methods() map[string]map[string]need {
	read, operate, admin := need{role: Read}, need{role: Operate}, need{role: Admin}
	// What the poller does as the keeper of the ledger: by hand it would go round the ledger.
	service := need{role: Admin, services: true}
	return map[string]map[string]need{
		"muxpost.dispatcher.v1.DispatcherService": {
			"Deliver": service, "Reopen": service,
			"GetDelivery": read, "ListDeliveries": read, "ListSessions": read, "ListEvents": read, "WatchEvents": read, "ListPauses": read,
			"ListParks": read, "ListOrphans": read, "WatchSessions": read, "ListHosts": read, "ListSuperseded": read, "Info": read,
			"Pause": operate, "Unpause": operate, "Unpark": operate, "StopSession": operate, "CloseSession": operate, "AdoptSession": operate,
			"RemoveTree": operate, "CancelEnding": operate, "DrainHost": operate, "UndrainHost": operate,
			// These say which machines are trusted, or leave conversations behind for good.
			"AddHost": admin, "AcceptHost": admin, "EvacuateHost": admin, "ForgetHost": admin,
			// An invitation is the name of a host for whoever has it. Enroll checks it itself.
			"InviteHost": admin, "Enroll": {role: Admin, open: true}, "Renew": {role: Admin, host: true},
			// Who may make tokens may do everything.
			"CreateToken": admin, "ListTokens": admin, "RevokeToken": admin,
		},
		"muxpost.team.v1.TeamService": {
			"GetRun": read, "ListRuns": read, "WatchRun": read, "GetLog": read,
			"StartRun": operate, "StartItemRun": operate, "CancelRun": operate, "AbandonRun": operate, "CleanRun": operate,
		},
		"muxpost.poller.v1.PollerService": {
			"ListAcknowledgements": read, "ListLinks": read, "ListLedger": read, "CountLedger": read, "ListSources": read, "ListPollEvents": read,
			"PollNow": operate, "Submit": operate, "Retry": operate, "Settle": operate, "Cancel": operate, "Acknowledge": operate, "LinkPull": operate,
		},
	}
}

// table is methods, made once.
var table = methods()

// needs returns what a call needs. Health is open; what can be called, which reflection says, is for whoever may look.
func needs(method string) need {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case "grpc.health.v1.Health":
		return need{open: true}
	case "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection":
		return need{role: Read}
	case "metrics": // the page of that name
		return need{role: Read}
	}
	if n, ok := table[service][name]; ok {
		return n
	}
	return need{role: Admin}
}
