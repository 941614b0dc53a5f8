#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
# headers-check.sh SOURCES OUT: compiles the plugin against the installed Slurm
# headers and against those of newer Debian suites. Prints TAP.
#
# The newer libslurm-dev packages come through apt with a root of its own, so
# that nothing is installed; apt verifies them with Debian's keyring. They are
# kept under ${KB_CACHE:-~/.cache/kernel-broker}/slurm-headers, one folder per
# version. A suite that is out of reach and not cached is a skip, or with
# HEADERS_STRICT=1 a failure.
set -eu

sources=$1
out=$2
suites=${HEADERS_SUITES:-trixie sid}
# The mirror that this machine's own Debian comes from.
# shellcheck disable=SC2016  # the parentheses are for apt to fill in
mirror=${DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' \
	'Identifier: Packages' 'Codename: bookworm' 'Origin: Debian' | head -n 1)}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cache=${KB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kernel-broker}/slurm-headers
apt=$cache/apt
index_age_days=7

n=0
failed=0

report() { # result text
	n=$((n + 1))
	[ "$1" = 0 ] || { failed=1; printf 'not '; }
	echo "ok $n - $2"
}

skip() { # text
	n=$((n + 1))
	if [ "${HEADERS_STRICT:-}" = 1 ]; then
		failed=1
		echo "not ok $n - $1"
	else
		echo "ok $n # SKIP $1"
	fi
}

version_of() { # include folder: as slurm_version.h has it
	sed -n 's/^#define SLURM_VERSION_NUMBER *\(0x[0-9a-f]*\).*/\1/p' \
		"$1/slurm/slurm_version.h" |
		{ read -r number && printf '%02d.%02d.%d\n' \
			$((number >> 16 & 255)) $((number >> 8 & 255)) $((number & 255)); }
}

compile() { # include folder or empty
	make -s -f "$sources/Makefile" all out="$out/$2" CC="${CC:-cc}" \
		SLURM_CPPFLAGS="${1:+-I$1}" >"$out/$2.log" 2>&1 &&
		sh "$sources/tests/symbols.t" "$out/$2/kernel_profile.so" \
			>>"$out/$2.log" 2>&1
}

check() { # include folder, or empty for the installed ones
	version=$(version_of "${1:-/usr/include}")
	result=0
	compile "$1" "$version" || result=1
	[ "$result" = 0 ] || sed 's/^/# /' "$out/$version.log"
	report "$result" "compiles against Slurm $version ($2)"
}

write_apt_conf() {
	mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
	: >"$apt/state/status"
	for suite in $suites; do
		echo "deb [signed-by=$keyring] $mirror $suite main"
	done >"$apt/sources.list"
	cat >"$apt/apt.conf" <<-EOF
	Dir::State "$apt/state";
	Dir::State::status "$apt/state/status";
	Dir::Cache "$apt/cache";
	Dir::Etc::sourcelist "$apt/sources.list";
	Dir::Etc::sourceparts "/dev/null";
	Dir::Etc::preferences "/dev/null";
	Dir::Etc::preferencesparts "/dev/null";
	APT::Sandbox::User "";
	Acquire::Languages "none";
	Acquire::Retries "2";
	Acquire::http::Timeout "20";
	Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
	Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
	EOF
	export APT_CONFIG="$apt/apt.conf"
}

refresh_index() {
	if [ -n "$(find "$apt/fresh" -mtime "-$index_age_days" 2>/dev/null)" ] &&
		cmp -s "$apt/sources.list" "$apt/fresh"; then
		return
	fi
	echo "# fetching the indexes of: $suites"
	if apt-get update -qq >"$apt/update.log" 2>&1 &&
		! grep -q '^[EW]:' "$apt/update.log"; then
		cp "$apt/sources.list" "$apt/fresh"
	else
		sed 's/^/# /' "$apt/update.log"
	fi
}

# Prints the include folder of the suite's libslurm-dev; fetches it if need be.
headers_of() { # suite
	package=$(apt-cache madison libslurm-dev |
		awk -v suite="$1/" 'index($5 " " $6, suite) { print $3; exit }')
	if [ -z "$package" ]; then
		# Out of reach today: what was found there before will do.
		package=$(cat "$cache/$1.version" 2>/dev/null) || return 1
	fi
	if [ ! -e "$cache/$package/usr/include/slurm/spank.h" ]; then
		work=$(mktemp -d "$cache/work.XXXXXX")
		if (cd "$work" && apt-get download -qq "libslurm-dev=$package" &&
			dpkg-deb -x ./*.deb tree) >>"$apt/update.log" 2>&1; then
			rm -rf "${cache:?}/$package"
			mv "$work/tree" "$cache/$package"
		fi
		rm -rf "$work"
		[ -e "$cache/$package/usr/include/slurm/spank.h" ] || return 1
	fi
	echo "$package" >"$cache/$1.version"
	echo "$cache/$package/usr/include"
}

mkdir -p "$out" "$cache"
if [ -e /usr/include/slurm/slurm_version.h ]; then
	check "" "installed"
else
	skip "libslurm-dev is not installed"
fi
if command -v apt-get >/dev/null && [ -e "$keyring" ]; then
	write_apt_conf
	refresh_index
	for suite in $suites; do
		if include=$(headers_of "$suite"); then
			check "$include" "Debian $suite"
		else
			skip "libslurm-dev of Debian $suite is out of reach"
		fi
	done
else
	skip "no apt, or no Debian keyring: only the installed headers"
fi
echo "1..$n"
[ "$failed" = 0 ]
