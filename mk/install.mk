# SPDX-License-Identifier: Apache-2.0 # mk/install.mk - packages that a build needs, install and bundle.

# Installs the packages of DEPS that are missing; waits for apt's lock.
deps:
	@missing=$$(for p in $(DEPS); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	[ -z "$$missing" ] && exit 0; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=$$(command -v sudo) || { echo "missing packages, and no way to install them: $$missing" >&2; exit 1; }; \
	echo "installing: "$$missing; \
	$$sudo apt-get -o DPkg::Lock::Timeout=600 -qq update && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq install -y --no-install-recommends $$missing >/dev/null || \
	{ echo "could not install: "$$missing >&2; exit 1; }

# ---- install ----
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man8
	install -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS:%=$(B)/%)
	$(if $(PLUGIN),install -m 644 -t $(DESTDIR)$(PREFIX)/bin $(PLUGIN))
	for m in docs/man/*; do install -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man$${m##*.} $$m; done
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/detd/python/detd python/detd/*.py
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/detd/python/detd/hooks python/detd/hooks/*.py
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/detd systemd/detd.conf LICENSE docs/NOTICE
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/include proto/detd_report.h
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(B)/detctl completion >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/detctl
	install -d $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system sysusers.d tmpfiles.d)
	for u in detd detd-launch; do \
	    sed 's|/usr/local/bin/|$(PREFIX)/bin/|' systemd/$$u.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u.service; \
	    install -m 644 systemd/$$u.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u.socket; done
	install -m 644 systemd/detd-admin.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/detd-admin.socket
	for k in sysusers tmpfiles; do install -m 644 systemd/detd.$$k $(DESTDIR)$(PREFIX)/lib/$$k.d/detd.conf; done
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/include/detd_report.h $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(PROGRAMS) libdetd-cuda.so) $(DESTDIR)$(PREFIX)/share/bash-completion/completions/detctl $(addprefix $(DESTDIR)$(PREFIX)/share/doc/detd/,detd.conf LICENSE NOTICE)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system/detd.service systemd/system/detd.socket systemd/system/detd-admin.socket systemd/system/detd-launch.service systemd/system/detd-launch.socket sysusers.d/detd.conf tmpfiles.d/detd.conf)
	rm -rf $(DESTDIR)$(PREFIX)/share/detd/python
	for m in docs/man/*; do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done

# ---- a folder that runs elsewhere: programs, plugin, and the shared libraries that a bare host lacks, but not CUDA's ----
VERSION := $(shell sed -n 's/^.define DETD_VERSION "\(.*\)"/\1/p' proto/version.h)
BUNDLE  := $(B)/detd-bundle-$(VERSION)-$(MACHINE)
bundle: $(PROGRAMS:%=$(B)/bundle/%) $(PLUGIN)
	@mk/bundle.sh $(B)/bundle $(BUNDLE) $(PLUGIN)

.PHONY: deps install uninstall bundle clean
