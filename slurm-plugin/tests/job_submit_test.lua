-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
-- job_submit.lua against a slurm table of the tests' own. Prints TAP.

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local count, failed = 0, 0
local said, logged

slurm = {
	ERROR = -1, SUCCESS = 0,
	NO_VAL16 = 65534, SHARED_FORCE = 32768,
	log_user = function(...) said = string.format(...) end,
	log_info = function(...) logged = string.format(...) end,
}
assert(dofile(here .. "/../job_submit.lua") == slurm.SUCCESS)

local function ok(passed, text, ...)
	count = count + 1
	if not passed then failed = failed + 1 end
	print((passed and "ok " or "not ok ") .. count .. " - " ..
		string.format(text, ...))
end

local function is(got, want, text)
	ok(got == want, "%s", text)
	if got ~= want then
		print("#  got: " .. tostring(got))
		print("# want: " .. tostring(want))
	end
end

-- A job as slurmctld 22.05 shows it: what is not set is NO_VAL or nil.
local function job(env, more)
	local desc = { shared = 65534, requeue = 65534, reboot = 65534 }
	if env then
		desc.spank_job_env = {}
		for i, entry in ipairs(env) do
			desc.spank_job_env[i - 1] = entry
		end
		desc.spank_job_env_size = #env
	end
	for key, value in pairs(more or {}) do
		desc[key] = value
	end
	return desc
end

local function submit(desc, parts)
	said = nil
	return slurm_job_submit(desc, parts or {}, 1000)
end

local function copy(t)
	local c = {}
	for k, v in pairs(t) do c[k] = v end
	return c
end

local function untouched(desc, text)
	local before = copy(desc)
	is(submit(desc), slurm.SUCCESS, text .. " is accepted")
	local same = true
	for k, v in pairs(desc) do same = same and before[k] == v end
	for k, v in pairs(before) do same = same and desc[k] == v end
	ok(same, "%s is left as it is", text)
	is(said, nil, text .. ": nothing is said")
end

-- plain jobs
untouched(job(), "a plain job")
untouched(job({}), "a job with an empty control environment")
untouched(job({ "OTHER=x", "X=KERNEL_PROFILE=y" }), "a job with others' variables")
untouched(job(nil, { shared = 1, requeue = 0 }), "a plain job that shares")
untouched(job({ "KERNEL_PROFILE=stock" }), "a job on stock")
untouched({}, "a description with nothing in it")
untouched(job(nil, { spank_job_env = "text" }), "an environment that is no table")
untouched(job(nil, { spank_job_env = { [0] = 5, [3] = false, [4] = "no equals" } }),
	"an environment of odd things")

-- profile jobs
for _, env in ipairs({
	{ "KERNEL_PROFILE=mitgcm" },
	{ "OTHER=x", "KERNEL_PROFILE=mitgcm", "LAST=y" },
	{ "SPANK_KERNEL_PROFILE=mitgcm" },
	{ "KERNEL_PROFILE=mitgcm", "KERNEL_PROFILE=mitgcm" },
	{ "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgcm", "KERNEL_PROFILE=mitgcm" },
	{ "SPANK_KERNEL_PROFILE=mitgcm", "SPANK__SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgcm" },
}) do
	local desc = job(env)
	is(submit(desc), slurm.SUCCESS, "a profile is accepted")
	is(desc.reboot, 1, "reboot")
	is(desc.shared, 0, "whole nodes")
	is(desc.requeue, 1, "requeue")
	is(desc.admin_comment, "kernel-broker: mitgcm requested", "admin_comment")
	is(said, nil, "nothing is said")
end

local holes = job()
holes.spank_job_env = { [7] = "KERNEL_PROFILE=mitgcm@3" }
is(submit(holes), slurm.SUCCESS, "an environment with holes")
is(holes.admin_comment, "kernel-broker: mitgcm@3 requested", "the version is named")

local stubborn = job({ "KERNEL_PROFILE=mitgcm" }, { requeue = 0 })
is(submit(stubborn), slurm.SUCCESS, "--no-requeue")
is(stubborn.requeue, 1, "is requeued all the same until the kernel is up")
is(stubborn.admin_comment, "kernel-broker: mitgcm requested; norequeue", "and remembered")
local eager = job({ "KERNEL_PROFILE=mitgcm" }, { requeue = 1 })
submit(eager)
is(eager.admin_comment, "kernel-broker: mitgcm requested", "--requeue needs no word")
local commented = job({ "KERNEL_PROFILE=mitgcm" }, { requeue = 0, admin_comment = "before" })
submit(commented)
is(commented.admin_comment, "before | kernel-broker: mitgcm requested; norequeue",
	"an earlier comment is kept, and first")
local exclusive = job({ "KERNEL_PROFILE=mitgcm" }, { shared = 0 })
is(submit(exclusive), slurm.SUCCESS, "--exclusive is what we want")
local bare = { spank_job_env = { [0] = "KERNEL_PROFILE=mitgcm" } }
is(submit(bare), slurm.SUCCESS, "a description without any other field")
is(bare.shared, 0, "gets what it needs")

-- profiling, with a profile and without
local looked = job({ "KERNEL_PROFILE=mitgcm", "KERNEL_PROFILING=io,noise" }, { requeue = 0, admin_comment = "before" })
is(submit(looked), slurm.SUCCESS, "a profile and profiling")
is(looked.reboot, 1, "it boots")
is(looked.admin_comment, "before | kernel-broker: mitgcm requested; profiling=io,noise; norequeue",
	"collectors are noted")
for _, env in ipairs({
	{ "KERNEL_PROFILING=io" }, { "SPANK_KERNEL_PROFILING=io" },
	{ "KERNEL_PROFILE=stock", "KERNEL_PROFILING=io" }, { "KERNEL_PROFILING=io", "KERNEL_PROFILING=io" },
}) do
	local desc = job(env, { shared = 1, requeue = 0 })
	is(submit(desc), slurm.SUCCESS, "profiling alone")
	is(desc.admin_comment, "kernel-broker: stock requested; profiling=io", "is noted")
	ok(desc.reboot == 65534 and desc.shared == 1 and desc.requeue == 0, "and all else is left")
end

-- whoever writes the admin_comment, the other's part stays
local ours = "kernel-broker: mitgcm requested; profiling=io; norequeue"
local long = string.rep("x", 5000)
for _, c in ipairs({
	-- what the job has, what somebody writes, what the job gets
	{ "site:grant=4711 | " .. ours, "kernel-broker: nodes boot mitgcm@1, 0 of 2 ready",
		"site:grant=4711 | kernel-broker: nodes boot mitgcm@1, 0 of 2 ready" },
	{ ours, "JS1:H4sIAAAA", "JS1:H4sIAAAA | " .. ours },
	{ "before | " .. ours, "JS1:H4sIAAAA", "JS1:H4sIAAAA | " .. ours },
	{ "a | b | " .. ours, "kernel-broker: x", "a | b | kernel-broker: x" },
	{ ours .. " | behind", "kernel-broker: x", "behind | kernel-broker: x" },
	{ "kernel-broker: quoted | " .. ours, "kernel-broker: x",
		"kernel-broker: quoted | kernel-broker: x" },
	{ "two\nlines | " .. ours, "kernel-broker: x", "two\nlines | kernel-broker: x" },
	{ ours, "", ours },
	{ "before | " .. ours, "", ours },
	{ nil, "kernel-broker: x", "kernel-broker: x" },
	{ nil, "theirs |  | and more", "theirs |  | and more" },
	{ "before", "after", "after" },
	{ ours, "theirs | kernel-broker: x", "theirs | kernel-broker: x" },
	{ ours, nil, nil },
	{ ours, long, long .. " | " .. ours },
}) do
	local change = { admin_comment = c[2] }
	is(slurm_job_modify(change, { admin_comment = c[1], user_id = 1000, job_id = 7 }, {}, 0),
		slurm.SUCCESS, "a change of the comment is accepted")
	is(change.admin_comment, c[3], string.format("%q, and then %q", tostring(c[1]), tostring(c[2])))
end

-- refusals
local function refused(desc, why, parts)
	local before = copy(desc)
	is(submit(desc, parts), slurm.ERROR, "refused: " .. why)
	ok(said and said:find(why, 1, true), "and says: %s", why)
	if not (said and said:find(why, 1, true)) then
		print("#  got: " .. tostring(said))
	end
	local same = true
	for k, v in pairs(desc) do same = same and before[k] == v end
	ok(same, "a refused job is left as it is")
end

refused(job({ "KERNEL_PROFILE=mitgcm" }, { shared = 1 }), "--oversubscribe conflicts with")
refused(job({ "KERNEL_PROFILE=mitgcm" }, { shared = 2 }), "--exclusive=user conflicts with")
refused(job({ "KERNEL_PROFILE=mitgcm" }, { shared = 3 }), "--exclusive=mcs conflicts with")
refused(job({ "KERNEL_PROFILE=mitgcm" }, { shared = 9 }), "sharing them conflicts with")
refused(job({ "KERNEL_PROFILE=b", "KERNEL_PROFILE=a" }), "requests a and b")
refused(job({ "KERNEL_PROFILE=a", "KERNEL_PROFILE=stock" }), "requests a and stock")
refused(job({ "KERNEL_PROFILE=a", "KERNEL_PROFILE=a@1" }), "requests a and a@1")
refused(job({ "KERNEL_PROFILE=a",
	"_SLURM_SPANK_OPTION_kernel_profile_kernel_profile=b" }), "requests a and b")
refused(job({ "KERNEL_PROFILE=a", "SPANK_KERNEL_PROFILE=b" }), "requests a and b")
refused(job({ "KERNEL_PROFILE=a", "KERNEL_PROFILE=" }), "requests  and a")

-- Slurm's own variable for the option, alone, is no request: only the variable that
-- the hook and the gate read counts.
for _, prefix in ipairs({ "", "SPANK_" }) do
	for _, value in ipairs({ "there-is-no-such-profile", "mitgcm", "stock", "", "Junk!" }) do
		refused(job({ prefix .. "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile=" .. value }),
			"is set without KERNEL_PROFILE")
	end
	refused(job({ "KERNEL_PROFILE=stock",
		prefix .. "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgcm" }), "requests mitgcm and stock")
	refused(job({ "KERNEL_PROFILE=",
		prefix .. "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile=mitgcm" }), "requests  and mitgcm")
end
untouched(job({ "SPANK_SPANK_KERNEL_PROFILE=a" }), "a variable that the hook does not see")

-- For every control environment of an accepted job, job_submit.lua, the broker's
-- hook and the gate see the same profile. The last two read SPANK_KERNEL_PROFILE,
-- which slurmctld makes of the entries: it prefixes those without a prefix, and
-- the last one counts.
local function hook_sees(entries)
	local seen
	for _, entry in ipairs(entries) do
		local name, value = entry:match("^([^=]+)=(.*)$")
		if name and not name:match("^SPANK_") then
			name = "SPANK_" .. name
		end
		if name == "SPANK_KERNEL_PROFILE" then
			seen = value
		end
	end
	return seen
end
local values = { "mitgcm", "mitgcm@3", "stock", "stock@7", "", "Junk!", "mitgcm,x" }
local entries = { "KERNEL_PROFILE", "=mitgcm" }
for _, name in ipairs({ "KERNEL_PROFILE", "SPANK_KERNEL_PROFILE", "SPANK_SPANK_KERNEL_PROFILE",
	"_SLURM_SPANK_OPTION_kernel_profile_kernel_profile",
	"SPANK__SLURM_SPANK_OPTION_kernel_profile_kernel_profile" }) do
	for _, value in ipairs(values) do
		entries[#entries + 1] = name .. "=" .. value
	end
end
local differ, let_in = {}, 0
for a = 0, #entries do
	for b = 0, #entries do
		for c = 0, #entries do
			local list = {}
			for _, i in ipairs({ a, b, c }) do
				list[#list + 1] = entries[i]
			end
			local desc = job(list)
			if submit(desc) == slurm.SUCCESS then
				let_in = let_in + 1
				local sees = hook_sees(list)
				local plain = sees == nil or sees:match("^stock$") or sees:match("^stock@")
				local malformed = sees and not sees:match("^[a-z0-9]+$") and not sees:match("^[a-z0-9]+@[1-9]$")
				if malformed or (plain and desc.reboot == 1) or (not plain and desc.reboot ~= 1) then
					differ[#differ + 1] = table.concat(list, " ")
				end
			end
		end
	end
end
is(differ[1], nil, "no control environment means two things")
ok(let_in > 1000, "%d of them are let in", let_in)

-- merging jobs: neither side may have a profile
local jobs = {
	["12"] = { job_id = 12, array_job_id = 0, het_job_id = 0, spank_job_env = { [0] = "KERNEL_PROFILE=mitgcm" } },
	["13"] = { job_id = 13, array_job_id = 0, het_job_id = 0 },
	["15"] = { job_id = 15, array_job_id = 14, het_job_id = 0, spank_job_env = { [0] = "SPANK_KERNEL_PROFILE=mitgcm" } },
	["17"] = { job_id = 17, array_job_id = 0, het_job_id = 16, spank_job_env = { [0] = "KERNEL_PROFILE=mitgcm" } },
	["18"] = { job_id = 18, array_job_id = 0, het_job_id = 0, spank_job_env = { [0] = "KERNEL_PROFILE=stock" } },
}
for _, list in ipairs({ "expand:13", "expand:99", "afterok:1,EXPAND:13?afterany:2" }) do
	refused(job({ "KERNEL_PROFILE=mitgcm" }, { dependency = list }), "cannot be added to another job's")
end
slurm.jobs = jobs
for _, list in ipairs({ "expand:12", "afterok:1,expand:12", "Expand:12", "expand:14_1", "expand:15", "expand:16+1" }) do
	refused(job(nil, { dependency = list }), "has a kernel profile, and no nodes can be added")
end
for _, list in ipairs({ "expand:13", "expand:18", "expand:99", "afterok:12", "singleton", "expand:", "" }) do
	untouched(job(nil, { dependency = list }), "a plain job with " .. list)
end
is(submit(job({ "KERNEL_PROFILE=mitgcm" }, { dependency = "afterok:12" })), slurm.SUCCESS,
	"a profile after another job")
slurm.jobs = nil
untouched(job(nil, { dependency = "expand:12" }), "a plain job where Slurm shows no jobs")

for _, list in ipairs({ "", "io,", "IO", "io noise", "io;x", "bogus", "io | kernel-broker: x", "%s" }) do
	refused(job({ "KERNEL_PROFILING=" .. list }), "is not a list of collectors")
	refused(job({ "KERNEL_PROFILE=a", "KERNEL_PROFILING=" .. list }), "is not a list of collectors")
end
refused(job({ "KERNEL_PROFILING=io", "KERNEL_PROFILING=noise" }), "one list of collectors")

local long = string.rep("a", 64)
for _, name in ipairs({ "", "A", "a b", "a,b", "../a", "a@", "a@0", "a@01", "a@x",
	"a@1@2", "@1", "-a", "a-", ".a", "_", "a\n", "a%s", "a@1234567890", long .. "a" }) do
	refused(job({ "KERNEL_PROFILE=" .. name }), "is not a kernel profile's name")
end
for _, name in ipairs({ "a", "0", "a.b-c_d", "a@1", "a@999999999", long, long .. "@9" }) do
	is(submit(job({ "KERNEL_PROFILE=" .. name })), slurm.SUCCESS, "a good name: " .. name)
end

-- partitions
local parts = {
	main = { name = "main", flag_default = 1, max_share = 1 },
	forced = { name = "forced", flag_default = 0, max_share = 32768 + 4 },
	one = { name = "one", flag_default = 0, max_share = 32768 + 1 },
	yes = { name = "yes", flag_default = 0, max_share = 4 },
	odd = { name = "odd" },
}
local env = { "KERNEL_PROFILE=mitgcm" }
is(submit(job(env), parts), slurm.SUCCESS, "the default partition")
for _, name in ipairs({ "main", "one", "yes", "odd", "unheard-of", "main,one" }) do
	is(submit(job(env, { partition = name }), parts), slurm.SUCCESS, "partition " .. name)
end
refused(job(env, { partition = "forced" }), "partition forced always shares", parts)
refused(job(env, { partition = "main,forced" }), "partition forced always shares", parts)
parts.forced.flag_default, parts.main.flag_default = 1, 0
refused(job(env), "partition forced always shares", parts)
parts.forced.flag_default, parts.main.flag_default = 0, 1
is(submit(job(nil, { partition = "forced" }), parts), slurm.SUCCESS, "a plain job may share")
is(slurm_job_submit(job(env), nil, 1000), slurm.SUCCESS, "no list of partitions")

-- changes
local function modify(desc, rec)
	said = nil
	return slurm_job_modify(desc, rec, parts, 1000)
end
local profile, plain = job(env), job()
is(modify(job(), profile), slurm.SUCCESS, "no change")
is(modify({}, {}), slurm.SUCCESS, "nothing known")
is(modify(job(nil, { time_limit = 5, partition = "main" }), profile), slurm.SUCCESS,
	"so are time and partition")
is(modify(job(nil, { shared = 0, reboot = 1 }), profile), slurm.SUCCESS, "whole nodes")
local NOT_SUPPORTED, DEPENDENCY = 2036, 2038
profile.job_id, profile.user_id, plain.user_id = 77, 1000, 1000
for _, requeue in ipairs({ 0, 1 }) do
	is(modify(job(nil, { requeue = requeue }), profile), NOT_SUPPORTED, "requeue is said at submit")
	is(modify(job(nil, { requeue = requeue }), plain), slurm.SUCCESS, "of a plain job at any time")
end
profile.user_id = 1001
is(modify(job(nil, { requeue = 0 }), profile), slurm.SUCCESS, "the broker, and an administrator, may")
profile.user_id = 1000
is(modify(job(nil, { shared = 1 }), profile), NOT_SUPPORTED, "no sharing")
ok(said and said:find("OverSubscribe", 1, true), "which is said")
ok(logged and logged:find("change of job 77 by user 1000 refused: a job with a kernel profile needs whole nodes", 1, true),
	"and logged, since slurmctld 22.05 drops what is said")
is(modify(job(nil, { shared = 2 }), profile), NOT_SUPPORTED, "not with oneself either")
is(modify(job(nil, { reboot = 0 }), profile), slurm.SUCCESS, "the boot is slurmctld's to guard")
is(modify(job(nil, { partition = "forced" }), profile), NOT_SUPPORTED, "no partition that shares")
is(modify(job(nil, { dependency = "expand:13" }), profile), DEPENDENCY, "its nodes go to no other job")
is(modify(job(nil, { dependency = "afterok:13" }), profile), slurm.SUCCESS, "other dependencies")
slurm.jobs = jobs
is(modify(job(nil, { dependency = "expand:12" }), plain), DEPENDENCY, "and none come to it")
is(modify(job(nil, { dependency = "expand:13" }), plain), slurm.SUCCESS, "plain jobs may be merged")
slurm.jobs = nil
is(modify(job(nil, { shared = 1, reboot = 0, partition = "forced" }), plain), slurm.SUCCESS,
	"a plain job may do all that")
is(modify(job(nil, { shared = 1 }), job({ "KERNEL_PROFILE=stock" })), slurm.SUCCESS,
	"a job on stock, too")

-- nodes that are kept for one job
for _, name in ipairs({ "kernel-broker-9", "course,kernel-broker-9_1", "kernel-broker-" }) do
	refused(job(nil, { reservation = name }), "keep nodes for one job")
	refused(job(env, { reservation = name }), "keep nodes for one job")
	local desc = job(nil, { reservation = name })
	is(slurm_job_modify(desc, job(nil, { user_id = 1000 }), parts, 1000), 2036, "not by the job's owner")
	is(slurm_job_modify(desc, job(nil, { user_id = 1000 }), parts, 64030), slurm.SUCCESS, "by the broker")
	is(slurm_job_modify(desc, job(nil, { user_id = 0 }), parts, 0), slurm.SUCCESS, "by a broker that is root, of root's job")
end
for _, name in ipairs({ "", "course", "my-kernel-broker-9", "kernel_broker-9" }) do
	is(submit(job(nil, { reservation = name }), parts), slurm.SUCCESS, "the reservation " .. name)
	is(modify(job(nil, { reservation = name }), profile), slurm.SUCCESS, "a change to " .. name)
end

-- an older slurmctld that lacks the constants
slurm.NO_VAL16, slurm.SHARED_FORCE = nil, nil
is(submit(job(env), parts), slurm.SUCCESS, "without constants")
refused(job(env, { partition = "forced" }), "partition forced always shares", parts)

print("1.." .. count)
os.exit(failed == 0 and 0 or 1)
