-- SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-or-later
--[[
Kernel Broker's part in slurmctld: sets the job options that a kernel profile
needs.

The SPANK plugin kernel_profile passes the profile in the job control
variable KERNEL_PROFILE. A job with this variable gets:

  reboot = 1          Slurm waits until its nodes have booted
  shared = 0          whole nodes, because jobs cannot share a kernel
  requeue = 1         Slurm requeues the job if a node cannot switch
  admin_comment       "kernel-broker: NAME requested" behind what is there,
                      which squeue and scontrol show; with --no-requeue also
                      "; norequeue", which the broker honours once the kernel
                      runs

A job with --kernel-profiling also has KERNEL_PROFILING, with or without a
profile. Its collectors are appended to the admin_comment,
"; profiling=io,noise", where the broker reads them. A job without a profile
gets no other change.

A job with neither is not changed. No job may name a reservation of
the broker's, which keeps nodes for another job.

The admin_comment belongs to the site: its grants, its job statistics. Ours is
one part of it, "THEIRS | kernel-broker: OURS". slurmctld asks this file about
every change, under its locks: whoever writes the field, first or last, the
other's part stays.

slurmctld calls this under its locks: no files, no network, no programs. The
SPANK plugin has checked the name; the broker authorizes it when the job
starts. A site with its own job_submit.lua loads this file with
dofile() and calls kernel_broker.submit and kernel_broker.modify.
]]

kernel_broker = {}

local CONTROL = "KERNEL_PROFILE"
local OPTION = "_SLURM_SPANK_OPTION_kernel_profile_kernel_profile"
local PROFILING = "KERNEL_PROFILING"
local STOCK = "stock"

-- NO_VAL of the 16 bit fields, which an older slurmctld does not export.
local NO_VAL16 = 0xfffe

-- Slurm's errors with the closest text; their numbers are the same from
-- 22.05 to 26.05: "Requested operation not supported on this system", "Job
-- dependency problem".
local NOT_SUPPORTED = 2036
local DEPENDENCY = 2038

local SHARED = {
	[1] = "--oversubscribe",
	[2] = "--exclusive=user",
	[3] = "--exclusive=mcs",
}

local function number_or(value, default)
	return type(value) == "number" and value or default
end

local function no_val16()
	return number_or(slurm.NO_VAL16, NO_VAL16)
end

-- Whether the user has set a 16 bit field of the job.
local function is_set(value)
	return type(value) == "number" and value ~= no_val16()
end

-- slurmctld passes numbers as floating point, and some Lua versions print 7.0
-- for 7.
local function id_text(id)
	return type(id) == "number" and string.format("%.0f", id) or tostring(id)
end

local function refuse(text)
	slurm.log_user("kernel-broker: %s", text)
	return slurm.ERROR
end

--[[
slurmctld 22.05 drops messages to the user on a change, so scontrol shows only
the error's own text; newer versions pass them on. slurmctld's log has the
message in every version.
]]
local function refuse_change(job_rec, uid, code, text)
	slurm.log_info("kernel-broker: change of job %s by user %s refused: %s",
		id_text(job_rec.job_id), id_text(uid), text)
	refuse(text)
	return code
end

--[[
A name has 1 to 64 letters, digits, dots, underscores and dashes, and begins and
ends with a letter or digit; a version is a positive number of up to 9 digits.
Returns the name, or nil.
]]
local function parse(value)
	local name, version = value:match("^([a-z0-9._-]+)@([1-9]%d*)$")
	if not name then
		name, version = value:match("^([a-z0-9._-]+)$"), ""
	end
	if not name or #name > 64 or #version > 9 then
		return nil
	end
	if not name:match("^[a-z0-9]") or not name:match("[a-z0-9]$") then
		return nil
	end
	return name
end

-- Calls take(name, value) for each NAME=VALUE of the job control environment.
local function each_control(job_desc, take)
	local env = job_desc.spank_job_env
	if type(env) ~= "table" then
		return
	end
	-- Slurm counts from 0 and leaves holes; pairs() returns all entries.
	for _, entry in pairs(env) do
		if type(entry) == "string" then
			local name, value = entry:match("^([^=]+)=(.*)$")
			if name then
				-- A resubmitted job has the prologs' prefix.
				take(name:gsub("^SPANK_", "", 1), value)
			end
		end
	end
end

--[[
Returns the profile that the job requests or nil, and an error or nil. The
broker's hook and the gate read only KERNEL_PROFILE. The plugin removes Slurm's
own variable for the option; a job that has it anyway, with another value or
alone, is refused.
]]
local function wanted(job_desc)
	local values, first, two, control, option = {}, nil, nil, nil, nil
	each_control(job_desc, function(name, value)
		if name ~= CONTROL and name ~= OPTION then
			return
		end
		control = control or name == CONTROL
		option = option or name == OPTION
		if first and first ~= value then
			two = true
		end
		first = first or value
		values[#values + 1] = value
	end)
	if option and not control then
		return nil, OPTION .. " is set without " .. CONTROL ..
			"; write --kernel-profile"
	end
	if two then
		table.sort(values)
		return nil, string.format(
			"one job has one kernel profile, and this one requests %s",
			table.concat(values, " and "))
	end
	if not first then
		return nil, nil
	end
	local name = parse(first)
	if not name then
		return nil, string.format(
			"%q is not a kernel profile's name (NAME or NAME@VERSION)",
			first:sub(1, 80))
	end
	if name == STOCK then
		return nil, nil
	end
	return first, nil
end

local COLLECTORS = {
	io = true, syscalls = true, callgraph = true, noise = true, pgo = true,
	callcounts = true,
}

--[[
Returns the collectors that the job requests or nil, and an error or nil. The
plugin writes a checked and sorted list. Other text from a user must not get
into the AdminComment.
]]
local function collectors(job_desc)
	local list, problem
	each_control(job_desc, function(name, value)
		if name ~= PROFILING then
			return
		end
		if list and list ~= value then
			problem = "one job has one list of collectors"
		end
		list = value
	end)
	if not list then
		return nil, nil
	end
	for one in (list .. ","):gmatch("([^,]*),") do
		if not COLLECTORS[one] then
			problem = string.format("%q is not a list of collectors (io, " ..
				"syscalls, callgraph, noise, pgo, callcounts)", list:sub(1, 80))
		end
	end
	return list, problem
end

local SEPARATOR = " | "
local OURS = "kernel-broker: "

-- Returns the site's part of an admin_comment, and ours or nil. Ours is the last
-- one that begins as ours does: the site's text may quote it.
local function parts(comment)
	local theirs, ours = {}, nil
	if type(comment) ~= "string" or comment == "" then
		return "", nil
	end
	comment = comment .. SEPARATOR
	local from = 1
	while from <= #comment do
		local to, next = comment:find(SEPARATOR, from, true)
		local part = comment:sub(from, to - 1)
		if part:sub(1, #OURS) == OURS then
			theirs[#theirs + 1] = ours
			ours = part
		else
			theirs[#theirs + 1] = part
		end
		from = next + 1
	end
	return table.concat(theirs, SEPARATOR), ours
end

local function join(theirs, ours)
	return theirs == "" and ours or theirs .. SEPARATOR .. ours
end

-- Puts our part into the comment of a job that is submitted.
local function comment_on(job_desc, text)
	job_desc.admin_comment = join((parts(job_desc.admin_comment)), text)
end

-- Keeps the part of an admin_comment that its writer leaves out: the broker
-- writes ours alone, the site its own.
local function keep_comment(job_desc, job_rec)
	if type(job_desc.admin_comment) ~= "string" then
		return
	end
	local theirs, ours = parts(job_desc.admin_comment)
	local theirs_before, ours_before = parts(job_rec.admin_comment)
	if ours and theirs == "" then
		job_desc.admin_comment = join(theirs_before, ours)
	elseif ours_before and not ours then
		job_desc.admin_comment = join(theirs, ours_before)
	end
end

-- Calls take(name, partition) for the job's partitions that are known so far.
local function each_partition(job_desc, part_list, take)
	if type(part_list) ~= "table" then
		return
	end
	local names = job_desc.partition
	for name, part in pairs(part_list) do
		if type(names) == "string" then
			for one in names:gmatch("[^,]+") do
				if one == name then
					take(name, part)
				end
			end
		elseif part.flag_default == 1 then
			take(name, part)
		end
	end
end

-- Returns a partition with OverSubscribe=FORCE, which shares nodes of any job.
local function forced_sharing(job_desc, part_list)
	local force = number_or(slurm.SHARED_FORCE, 0x8000)
	local found
	each_partition(job_desc, part_list, function(name, part)
		local share = number_or(part.max_share, 1)
		-- FORCE:1 runs one job at a time and shares nothing.
		if share >= force and share - force > 1 then
			found = name
		end
	end)
	return found
end

--[[
Returns the ids of the jobs that a job expands, from a list of dependencies such
as "afterok:5,expand:12_3", or nil.
]]
local function expands(job_desc)
	local ids, any = {}, false
	local list = job_desc.dependency
	if type(list) == "string" then
		for id in list:lower():gmatch("expand:(%d+)") do
			ids[tonumber(id)] = true
			any = true
		end
	end
	return any and ids or nil
end

--[[
Returns why a job cannot expand another one, or nil. Neither may have a profile:
their nodes would run different kernels. Slurm passes all jobs here; the id of an
array or a heterogeneous job means all its parts.
]]
local function merge_problem(job_desc, profile)
	local ids = expands(job_desc)
	if not ids then
		return nil
	end
	if profile then
		return "the nodes of a job with a kernel profile cannot be added " ..
			"to another job's (--dependency=expand)"
	end
	for _, other in pairs(type(slurm.jobs) == "table" and slurm.jobs or {}) do
		if (ids[other.job_id] or ids[other.array_job_id] or
				ids[other.het_job_id]) and wanted(other) then
			return string.format("job %s has a kernel profile, and no nodes " ..
				"can be added to it (--dependency=expand)",
				id_text(other.job_id))
		end
	end
	return nil
end

-- Reservations of nodes that the broker keeps for a job. Only the broker may put
-- a job into them, and it never acts as the job's owner.
local KEPT = "^kernel%-broker%-"

local function names_kept(job_desc)
	local names = job_desc.reservation
	if type(names) == "string" then
		for one in names:gmatch("[^,%s]+") do
			if one:match(KEPT) then
				return true
			end
		end
	end
	return false
end

local NOT_YOURS = "the reservations kernel-broker-* keep nodes for one job " ..
	"that waits; no other job can use them"

function kernel_broker.submit(job_desc, part_list, submit_uid)
	if names_kept(job_desc) then
		return refuse(NOT_YOURS)
	end
	local profile, problem = wanted(job_desc)
	problem = problem or merge_problem(job_desc, profile)
	local list
	if not problem then
		list, problem = collectors(job_desc)
	end
	if problem then
		return refuse(problem)
	end
	local profiling = list and "; profiling=" .. list or ""
	if not profile then
		if list then
			comment_on(job_desc, "kernel-broker: " .. STOCK ..
				" requested" .. profiling)
		end
		return slurm.SUCCESS
	end
	local shared = job_desc.shared
	if is_set(shared) and shared ~= 0 then
		return refuse(string.format(
			"a job with a kernel profile needs whole nodes; %s " ..
			"conflicts with --kernel-profile=%s",
			SHARED[shared] or "sharing them", profile))
	end
	local partition = forced_sharing(job_desc, part_list)
	if partition then
		return refuse(string.format(
			"a job with a kernel profile needs whole nodes, but the " ..
			"partition %s always shares them (OverSubscribe=FORCE)",
			partition))
	end

	local comment = "kernel-broker: " .. profile .. " requested" .. profiling
	if is_set(job_desc.requeue) and job_desc.requeue == 0 then
		comment = comment .. "; norequeue"
	end
	comment_on(job_desc, comment)
	job_desc.reboot = 1
	job_desc.shared = 0
	job_desc.requeue = 1
	slurm.log_info("kernel-broker: job of user %s requests kernel profile %s",
		id_text(submit_uid), profile)
	return slurm.SUCCESS
end

--[[
Refuses changes after which a job could run on a kernel it did not request:
sharing the nodes, expanding jobs, and using nodes kept for another job; and of
whether the job may be requeued: the broker needs that while the nodes boot, and
then sets again what was asked for at submit. The user may change everything else
(time, partition, hold, priority). slurmctld
lets only administrators change whether the nodes boot; the broker is one of
them, and does so for a job whose nodes it kept.
]]
local function refused_change(job_desc, job_rec, part_list, modify_uid)
	if names_kept(job_desc) and modify_uid ~= 0 and
		modify_uid == job_rec.user_id then
		return refuse_change(job_rec, modify_uid, NOT_SUPPORTED, NOT_YOURS)
	end
	local profile = wanted(job_rec)
	local problem = merge_problem(job_desc, profile)
	if problem then
		return refuse_change(job_rec, modify_uid, DEPENDENCY, problem)
	end
	if not profile then
		return nil
	end
	if is_set(job_desc.shared) and job_desc.shared ~= 0 then
		return refuse_change(job_rec, modify_uid, NOT_SUPPORTED,
			"a job with a kernel profile needs whole nodes: " ..
			"OverSubscribe cannot be turned on")
	end
	-- The broker, and an administrator, are another user.
	if is_set(job_desc.requeue) and modify_uid ~= 0 and
		modify_uid == job_rec.user_id then
		return refuse_change(job_rec, modify_uid, NOT_SUPPORTED,
			"whether a job with a kernel profile is requeued is said " ..
			"at submit (--requeue, --no-requeue)")
	end
	if type(job_desc.partition) == "string" then
		local partition = forced_sharing(job_desc, part_list)
		if partition then
			return refuse_change(job_rec, modify_uid, NOT_SUPPORTED,
				string.format("a job with a kernel profile needs whole " ..
				"nodes, but the partition %s always shares them " ..
				"(OverSubscribe=FORCE)", partition))
		end
	end
	return nil
end

function kernel_broker.modify(job_desc, job_rec, part_list, modify_uid)
	local refusal = refused_change(job_desc, job_rec, part_list, modify_uid)
	if refusal then
		return refusal
	end
	keep_comment(job_desc, job_rec)
	return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
	return kernel_broker.submit(job_desc, part_list, submit_uid)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
	return kernel_broker.modify(job_desc, job_rec, part_list, modify_uid)
end

return slurm.SUCCESS
